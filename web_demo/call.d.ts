import { Session, TrackPosition } from "./client.js";

export interface Call {
  readonly stream: MediaStream;
  /** At 48 kHz; null before the first packet has been played. */
  readonly rtpTimestamp: number | null;
  heardS(position: Pick<TrackPosition, "sample" | "rtp_timestamp">): number;
  statistics(): Promise<RTCInboundRtpStreamStats | null>;
}

export interface CallOptions {
  element?: HTMLMediaElement | null;
  microphone?: MediaStream | null;
  iceServers?: RTCIceServer[];
}

export declare function openCall(url: string | URL, options?: CallOptions): Promise<Session & { readonly call: Call }>;
