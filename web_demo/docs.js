// Shows the server's own OpenAPI document and lets one try its requests. Nothing comes from elsewhere.

const METHODS = ["get", "post", "put", "patch", "delete", "options"];
const TEXT = /json|^text\//;
const key = document.getElementById("key");

/** Makes an element: attributes, or properties where there is one of that name, then children. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Turns Markdown's backticks into code; the document uses nothing else of it. */
function prose(text) {
  return text.split("`").map((piece, index) => (index % 2 ? make("code", {}, piece) : piece));
}

/** Follows a reference within the document. */
function resolve(spec, schema) {
  const name = schema?.$ref?.split("/").pop();
  return name ? spec.components.schemas[name] : (schema ?? {});
}

/** Says what a value may be, in a few words. */
function kind(spec, schema) {
  const found = resolve(spec, schema);
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(", ");
  if (found.const !== undefined) return JSON.stringify(found.const);
  const choices = found.anyOf ?? found.oneOf;
  if (choices) return choices.map((each) => kind(spec, each)).filter((text) => text !== "null").join(" or ");
  if (found.format === "binary") return "file";
  if (found.type === "array") return `list of ${kind(spec, found.items)}`;
  if (found.properties) return `{${Object.keys(found.properties).join(", ")}}`;
  const limits = [found.minimum, found.maximum].map((limit) => limit ?? "");
  return limits.join("") === "" ? (found.type ?? "any") : `${found.type}, ${limits.join("–")}`;
}

function fieldTable(spec, rows) {
  const head = make("tr", {}, ...["field", "values", "meaning"].map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map(({ name, schema, required }) => make("tr", {},
    make("td", {}, make("code", {}, name), required ? " required" : ""),
    make("td", {}, kind(spec, schema)),
    make("td", {}, ...prose(schema.description ?? resolve(spec, schema).description ?? ""))));
  return make("table", { className: "fields" }, make("thead", {}, head), make("tbody", {}, ...body));
}

function input(name, schema, value) {
  const control = schema.format === "binary"
    ? make("input", { type: "file", name })
    : make("input", { type: "text", name, value: value ?? "", spellcheck: false });
  return make("label", {}, name, control);
}

/** The request that a form describes. */
function request(operation, form) {
  const { method, path, parameters, media } = operation;
  const data = new FormData(form);
  let url = path;
  const query = new URLSearchParams();
  for (const parameter of parameters) {
    const value = data.get(parameter.name) ?? "";
    data.delete(parameter.name);
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(value));
    else if (value) query.set(parameter.name, value);
  }
  const headers = key.value ? { Authorization: `Bearer ${key.value}` } : {};
  let body;
  if (media === "application/json") {
    headers["Content-Type"] = media;
    body = data.get("body");
  } else if (media) {
    for (const [name, value] of [...data]) {
      if (value === "" || (value instanceof File && !value.name)) data.delete(name);
    }
    body = media === "multipart/form-data" ? data : new URLSearchParams([...data]);
  }
  const tail = query.toString();
  return [tail ? `${url}?${tail}` : url, { method: method.toUpperCase(), headers, body }];
}

/** Plays, shows or saves an answer. */
async function answerOf(response) {
  const status = make("p", { className: "status" }, `${response.status} ${response.statusText}`);
  const type = response.headers.get("Content-Type") ?? "";
  if (TEXT.test(type)) {
    const text = await response.text();
    const shown = type.includes("json") ? JSON.stringify(JSON.parse(text), null, 2) : text;
    return [status, make("pre", { tabIndex: 0 }, shown)];
  }
  const blob = await response.blob();
  if (!blob.size) return [status];
  const href = URL.createObjectURL(blob);
  const save = make("a", { href, download: "answer" }, `Save ${blob.size} bytes of ${type}`);
  const player = make("audio", { controls: true, src: href });
  return /^audio\/(?!pcm)/i.test(type) ? [status, player, save] : [status, save];
}

function tryIt(spec, operation) {
  const { parameters, media, content } = operation;
  const form = make("form", {});
  for (const parameter of parameters) form.append(input(parameter.name, parameter.schema));
  if (media === "application/json") {
    const example = JSON.stringify(content.example ?? {}, null, 2);
    form.append(make("label", {}, "body", make("textarea", { name: "body", value: example, spellcheck: false })));
  } else if (media) {
    const fields = Object.entries(resolve(spec, content.schema).properties);
    form.append(...fields.map(([name, schema]) => input(name, schema, content.example?.[name])));
  }
  const send = make("button", { type: "submit", className: "primary" }, "Send");
  const result = make("div", { className: "inside", role: "status" });
  form.append(make("div", {}, send));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    result.replaceChildren();
    try {
      result.replaceChildren(...(await answerOf(await fetch(...request(operation, form)))));
    } catch (error) {
      result.replaceChildren(make("p", { className: "message" }, `The request failed: ${error.message}`));
    } finally {
      send.disabled = false;
    }
  });
  return [form, result];
}

function describe(spec, operation) {
  const { parameters, content } = operation;
  const schema = content ? resolve(spec, content.schema) : {};
  const rows = [
    ...parameters,
    ...Object.entries(schema.properties ?? {}).map(([name, each]) => (
      { name, schema: each, required: schema.required?.includes(name) })),
  ];
  const kinds = Object.entries(operation.responses).flatMap(([status, { content: media }]) => (
    status === "default" ? [] : `${status} ${Object.keys(media ?? {}).join(", ")}`));
  return [
    ...(operation.description ? [make("p", {}, ...prose(operation.description))] : []),
    ...(rows.length ? [fieldTable(spec, rows)] : []),
    make("p", { className: "faint" }, `Answers ${kinds.join("; ")}`),
    ...tryIt(spec, operation),
  ];
}

function row(spec, operation) {
  const details = make("details", { className: "operation", id: operation.operationId },
    make("summary", {},
      make("span", { className: "verb" }, operation.method.toUpperCase()),
      make("span", { className: "path" }, operation.path),
      make("span", { className: "summary" }, ...prose(operation.summary))));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) {
      details.append(make("div", { className: "inside" }, ...describe(spec, operation)));
    }
  });
  return details;
}

function operationsOf(spec) {
  return Object.entries(spec.paths).flatMap(([path, methods]) => METHODS.filter((method) => method in methods).map((method) => {
    const operation = methods[method];
    const [media, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
    return { ...operation, path, method, media, content };
  }));
}

async function show() {
  const response = await fetch("openapi.json");
  if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
  const spec = await response.json();
  document.getElementById("about").textContent = `Version ${spec.info.version}. ${spec.info.description}`;
  const operations = operationsOf(spec);
  const groups = spec.tags.flatMap(({ name }) => [
    make("h2", { className: "group" }, name),
    ...operations.filter(({ tags }) => tags[0] === name).map((operation) => row(spec, operation)),
  ]);
  document.getElementById("operations").replaceChildren(...groups);
  const wanted = document.getElementById(location.hash.slice(1));
  if (wanted instanceof HTMLDetailsElement) wanted.open = true;
}

document.getElementById("access").addEventListener("submit", (event) => event.preventDefault());
show().catch((error) => {
  const problem = document.getElementById("problem");
  problem.textContent = `The description of this server could not be read: ${error.message}`;
  problem.hidden = false;
});
