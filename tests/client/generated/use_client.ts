// Uses the types that openapi-typescript generates, with openapi-fetch: `node use_client.js URL TOKEN REVIEWER_TOKEN`.
// What the types do not allow, tsc refuses; what the server does otherwise ends the program with an error.
import createClient from "openapi-fetch";
import type { components, paths } from "./ade.js";

declare const process: { argv: string[] };

type Task = components["schemas"]["Task"];
type Problem = components["schemas"]["Problem"];

function check(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

const [url = "", token = "", reviewerToken = ""] = process.argv.slice(2);
const client = (bearer: string) =>
  createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${bearer}` } });
const author = client(token);
const reviewer = client(reviewerToken);

async function create(body: components["schemas"]["NewTask"]): Promise<Task> {
  const { data, error } = await author.POST("/api/v1/tasks", { body });
  check(data !== undefined, JSON.stringify(error));
  return data;
}

async function createAndRead(): Promise<void> {
  const created = await create({ name: "greet", args: { name: "Ada", deep: [1, null] }, ticket_ref: "OPS-7", timeout_ms: 1500 });
  const { data } = await author.GET("/api/v1/tasks/{task_id}", { params: { path: { task_id: created.id } } });
  check(data !== undefined, "the task is there");
  const status: components["schemas"]["Status"] = data.status;
  const attempt: number = data.attempt; // always there: no `undefined` in its type
  check(status === "pending" && attempt === 0, "it waits");
  check(data.ticket_ref === "OPS-7" && data.timeout_ms === 1500, "it has the fields that were sent");
}

async function listPageByPage(): Promise<void> {
  for (let number = 0; number < 5; number++) await create({ name: "greet", tags: ["paged"] });
  const found: string[] = [];
  let cursor: string | undefined;
  do {
    const query = { tag: "paged", status: ["pending" as const], limit: 2, ...(cursor === undefined ? {} : { cursor }) };
    const { data, error } = await author.GET("/api/v1/tasks", { params: { query } });
    check(data !== undefined, JSON.stringify(error));
    found.push(...data.items.map((task) => task.id));
    cursor = data.next;
  } while (cursor !== undefined);
  check(found.length === 5 && new Set(found).size === 5, "each task is on one page");
  const [first = ""] = found;
  const { data } = await author.POST("/api/v1/tasks/{task_id}/cancel", {
    params: { path: { task_id: first } },
    body: { reason: "enough" },
  });
  check(data?.status === "cancelled" && data.reason === "enough", "it is canceled");
}

async function vote(): Promise<void> {
  const task = await create({ name: "pay" });
  const { data: waiting } = await reviewer.GET("/api/v1/approvals", { params: { query: { mine: true } } });
  const pending = waiting?.items.find((each) => each.task_id === task.id);
  check(pending !== undefined, "it waits for the reviewer");
  const { data: voted, error } = await reviewer.POST("/api/v1/approvals/{task_id}/respond", {
    params: { path: { task_id: task.id } },
    body: { decision: "approve", approval: pending.approval, digest: pending.digest },
  });
  check(voted?.task.status === "pending" && voted.missing.length === 0, JSON.stringify(error));
}

async function readEvents(): Promise<void> {
  const { data } = await author.GET("/api/v1/events", { params: { query: { after: 0, type: ["task.cancelled"] } } });
  check(data !== undefined && typeof data !== "string", "without Accept it is a page, and no stream");
  const last = data.items.at(-1);
  check(last?.type === "task.cancelled" && last.payload["reason"] === "enough", "the cancellation is in the log");
}

async function errorsAreTyped(): Promise<void> {
  const missing = "01a1ee05-1057-708b-8c02-eeabbab879a3";
  const { data, error, response } = await author.GET("/api/v1/tasks/{task_id}", { params: { path: { task_id: missing } } });
  check(data === undefined && error !== undefined, "there is no such task");
  const problem: Problem = error;
  check(response.status === 404 && problem.status === 404 && problem.code === "unknown_task", "it is a problem");
  const { error: refused } = await author.POST("/api/v1/tasks", { body: { name: "greet", max_attempts: 0 } });
  check(refused?.status === 422, "a wrong field is refused");
}

await createAndRead();
await listPageByPage();
await vote();
await readEvents();
await errorsAreTyped();
// @ts-expect-error: a task needs a name
const wrong: components["schemas"]["NewTask"] = {};
check(Object.keys(wrong).length === 0, "only the types know better");
console.log("all is well");
