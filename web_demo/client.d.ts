export declare const PROTOCOL: "cosyvoice-stream.v1";

/** A message of the server or for it, as docs/protocol.md describes it. */
export interface Message {
  type: string;
  [field: string]: unknown;
}

export type Fragments = string | Iterable<string> | AsyncIterable<string>;
export type Recording = Int16Array | Iterable<Int16Array> | AsyncIterable<Int16Array>;

export interface SpeakOptions {
  voice?: string;
  speed?: number;
  pitch?: number;
  volume?: number;
  seed?: number;
  strength?: number;
  language?: string;
  marks?: ("word" | "viseme")[];
  output?: { encoding?: string; sample_rate?: number; frame_ms?: number; buffer_ms?: number };
  [option: string]: unknown;
}

export interface VoiceOptions {
  name?: string;
  transcript?: string;
  consent?: string;
  persist?: boolean;
  input?: { encoding?: string; sample_rate?: number };
  [option: string]: unknown;
}

/** Where an utterance is on the clock of a call's track, at 48 kHz. */
export interface TrackPosition extends Message {
  sample: number;
  rtp_timestamp: number;
}

export declare class ServerError extends Error {
  constructor(event: { message: string; [field: string]: unknown });
  readonly code: string;
  readonly howToFix: string | null;
  readonly retryAfterMs: number | null;
}

export declare class ConnectionLost extends Error {
  constructor(message: string);
  readonly code: "connection_lost";
}

export declare class VoiceRejected extends Error {
  constructor(event: { message: string; [field: string]: unknown });
  readonly reason: string;
  readonly howToFix: string | null;
  readonly quality: Record<string, unknown> | null;
}

export interface UtteranceEvents {
  started: [event: Message];
  audio: [samples: Float32Array | Uint8Array, position: number, last: boolean];
  marks: [event: Message];
  position: [event: TrackPosition];
  end: [event: Message | null, error: Error | null];
}

export interface SessionEvents {
  progress: [event: Message];
  error: [error: ServerError];
  close: [event: unknown];
}

interface Emitter<Events extends { [name in keyof Events]: unknown[] }> {
  on<Name extends keyof Events>(name: Name, listener: (...values: Events[Name]) => void): this;
}

export interface Utterance extends Emitter<UtteranceEvents> {}
export declare class Utterance {
  private constructor();
  readonly id: string;
  readonly number: number | null;
  /** In hertz. */
  readonly sampleRate: number | null;
  readonly encoding: string | null;
  readonly finished: boolean;
  readonly ended: Promise<Message>;
  push(text: string): void;
  flush(): void;
  end(): void;
  cancel(): Promise<Message>;
  played(milliseconds: number): void;
}

export interface Session extends Emitter<SessionEvents> {}
export declare class Session {
  protected constructor();
  static open(url: string | URL): Promise<Session>;
  readonly ready: Message;
  readonly open: boolean;
  readonly waitingBytes: number;
  speak(text: Fragments, options?: SpeakOptions): Utterance;
  update(options: Record<string, unknown>): void;
  beginVoice(options: VoiceOptions): void;
  record(samples: Int16Array): void;
  commitVoice(): Promise<Message>;
  cancelVoice(): void;
  clone(recording: Recording, options?: VoiceOptions): Promise<Message>;
  cancel(): void;
  send(message: Message): void;
  close(): void;
}
