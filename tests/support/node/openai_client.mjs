// Calls the server at the address in the first argument with OpenAI's Node client, whose only change is
// the address, and prints one JSON object with what it saw. The second argument says what to do.
import net from "node:net";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

const [address, job] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: process.env.KEY ?? "any", maxRetries: 0 });
const asked = { model: "gpt-4o-mini-tts", voice: "alloy", input: "hello there world" };

const jobs = {
  /** Each format as a whole. */
  async formats() {
    const found = {};
    for (const response_format of ["mp3", "opus", "aac", "flac", "wav", "pcm"]) {
      const answer = await client.audio.speech.create({ ...asked, response_format });
      const data = Buffer.from(await answer.arrayBuffer());
      found[response_format] = { type: answer.headers.get("content-type"), data: data.toString("base64") };
    }
    return found;
  },

  /** The first piece only; then the connection is cut. */
  async cut() {
    const answer = await client.audio.speech.create({ ...asked, response_format: "pcm" });
    const reader = answer.body.getReader();
    const { value } = await reader.read();
    await reader.cancel();
    return { bytes: value.length };
  },

  async mistakes() {
    const caught = [];
    for (const wrong of [{ voice: "nobody" }, { speed: 9 }, { input: "" }, { input: "a ".repeat(100_000) }]) {
      try {
        await client.audio.speech.create({ ...asked, ...wrong });
      } catch (error) {
        caught.push({ kind: error.constructor.name, status: error.status, param: error.param, type: error.type });
      }
    }
    return caught;
  },

  async key() {
    try {
      await client.models.list();
    } catch (error) {
      return { kind: error.constructor.name, code: error.code };
    }
    return {};
  },

  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    return ids;
  },

  /** One message spoken over the WebSocket. The client insists on wss:, so its TLS is taken out below it. */
  async realtime() {
    const { hostname, port } = new URL(address);
    const options = { createConnection: () => net.connect(Number(port), hostname) };
    const socket = new OpenAIRealtimeWS({ model: "gpt-realtime", options }, client);
    const kinds = [];
    let bytes = 0;
    await new Promise((resolve, reject) => {
      socket.on("error", reject);
      socket.on("session.created", () => {
        const content = [{ type: "input_text", text: asked.input }];
        socket.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
        socket.send({ type: "response.create" });
      });
      socket.on("event", ({ type }) => kinds.push(type));
      socket.on("response.output_audio.delta", ({ delta }) => (bytes += Buffer.from(delta, "base64").length));
      socket.on("response.done", resolve);
    });
    socket.close();
    return { kinds, bytes };
  },
};

process.stdout.write(JSON.stringify(await jobs[job]()));
