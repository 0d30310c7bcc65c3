// Words of the page in English and Chinese. Server messages come in English; what they mean is chosen by their code.

const WORDS = {
  en: {
    skip: "Skip to the text", theme: "Light or dark", say: "Say something", textLabel: "Text to speak",
    examples: "Example texts", speak: "Speak", stop: "Stop", download: "Download WAV",
    keys: "Ctrl + Enter speaks, Esc stops", waveform: "Waveform of the speech",
    firstAudio: "First audio", serverFirst: "in the server", rtf: "Real-time factor", length: "Audio",
    buffer: "Lead", underruns: "Underruns", voice: "Voice", yourVoice: "In your voice",
    readThis: "Read this aloud, or anything else for 3 to 10 seconds:",
    prompt: "On a clear morning we walked along the harbour, counting boats and talking about the summer.",
    consent: "This is my voice, or I may use it.", record: "Record", finish: "Done", again: "Record again",
    drop: "or choose or drop a recording (WAV, MP3, FLAC, OGG, M4A, WebM)", options: "How it is spoken",
    speed: "Speed", pitch: "Pitch", volume: "Volume", strength: "Adaptation", seed: "Seed", random: "random",
    hear: "Hear the same text in this voice", remove: "Delete", characters: "characters",
    builtin: "built in", adapted: "adapted", cloned: "cloned", mine: "My voice",
    connecting: "connecting", ready: "ready", lost: "connection lost, trying again", warming: "the engine is warming up",
    reportOk: "Good recording", reportWarn: "Usable recording", reportFail: "This recording cannot be used",
    checking: "Checking the recording", noMicrophone: "The microphone cannot be used. Allow it in the browser, or choose a file.",
    insecure: "Browsers give the microphone to https pages and to localhost only. Open the page there, or choose a file.",
    consentFirst: "Please confirm that you may use this voice.", nothing: "There was nothing to say in this text.",
    needKey: "This server asks for a key: add ?api_key=… to the address of this page.", noText: "Write something first.",
    tooLarge: "This file is too large.", interrupted: "Stopped.", heard: "You heard",
    adaptation: "This engine adapts its built-in voice to your recording: pitch, formants and timbre move towards you. A CosyVoice engine clones it: timbre, accent and rhythm come from the recording itself, in many languages.",
    cloning: "This engine clones: timbre, accent and rhythm come from the recording itself.",
    exampleNames: ["Greeting", "Directions", "Numbers", "Long story"],
    hints: {
      speak: "Speak, please", speak_louder: "Louder, or closer to the microphone", too_loud: "Too loud: move back a little",
      more_speech: "A little more", enough: "That is enough", too_long: "Long enough: press Done",
    },
    items: {
      duration: "Length", speech: "Speech", level: "Level", clipping: "Clipping", noise: "Signal to noise",
      music: "Music", attempts: "Attempts", pauses: "Longest pause", bandwidth: "Bandwidth", ending: "Ending",
    },
    advice: {},
    errors: {},
  },
  zh: {
    skip: "跳到文本", theme: "浅色或深色", say: "说点什么", textLabel: "要朗读的文本",
    examples: "示例文本", speak: "朗读", stop: "停止", download: "下载 WAV",
    keys: "Ctrl + Enter 朗读，Esc 停止", waveform: "语音波形",
    firstAudio: "首音延迟", serverFirst: "服务器内", rtf: "实时率", length: "音频",
    buffer: "缓冲", underruns: "断流", voice: "声音", yourVoice: "用你的声音",
    readThis: "朗读下面这句话，或随意说 3 到 10 秒：",
    prompt: "On a clear morning we walked along the harbour, counting boats and talking about the summer.",
    consent: "这是我的声音，或我有权使用它。", record: "录音", finish: "完成", again: "重新录音",
    drop: "或选择、拖入一段录音（WAV、MP3、FLAC、OGG、M4A、WebM）", options: "朗读方式",
    speed: "语速", pitch: "音高", volume: "音量", strength: "适配强度", seed: "随机种子", random: "随机",
    hear: "用这个声音听同一段文本", remove: "删除", characters: "个字符",
    builtin: "内置", adapted: "已适配", cloned: "已克隆", mine: "我的声音",
    connecting: "正在连接", ready: "就绪", lost: "连接断开，正在重试", warming: "引擎正在预热",
    reportOk: "录音良好", reportWarn: "录音可用", reportFail: "这段录音无法使用",
    checking: "正在检查录音", noMicrophone: "无法使用麦克风。请在浏览器中允许，或选择文件。",
    insecure: "浏览器只在 https 页面和 localhost 上提供麦克风。请在那里打开本页，或选择文件。",
    consentFirst: "请先确认你有权使用这个声音。", nothing: "这段文本没有可朗读的内容。",
    needKey: "服务器需要密钥：请在本页地址后加上 ?api_key=…", noText: "请先输入文本。",
    tooLarge: "文件太大。", interrupted: "已停止。", heard: "你听到了",
    adaptation: "本引擎把内置声音向你的录音适配：音高、共振峰和音色会靠近你。CosyVoice 引擎则是克隆：音色、口音和节奏来自录音本身，并支持多种语言。",
    cloning: "本引擎进行克隆：音色、口音和节奏来自录音本身。",
    exampleNames: ["问候", "指路", "数字", "长故事"],
    hints: {
      speak: "请说话", speak_louder: "大声一点，或靠近麦克风", too_loud: "太响了：离远一点",
      more_speech: "再说一点", enough: "够了", too_long: "够长了：请按完成",
    },
    items: {
      duration: "时长", speech: "语音", level: "音量", clipping: "削波", noise: "信噪比",
      music: "音乐", attempts: "重复次数", pauses: "最长停顿", bandwidth: "带宽", ending: "结尾",
    },
    advice: {
      too_short: "请说满 3 秒以上。", too_long: "只使用了最好的一段。", too_quiet: "请大声一点或靠近麦克风。",
      no_speech: "没有听到语音，请检查麦克风。", clipped: "声音过载，请离麦克风远一点。", noisy: "背景太吵，请换个安静的地方。",
      music: "请关掉音乐。", narrow_band: "像电话录音，建议用更好的麦克风。", several_attempts: "请一次说完，不要重来。",
      long_pauses: "请连贯地说，不要长时间停顿。", cut_off: "结尾被切断，请说完再停。",
      no_voiced_speech: "请用正常的声音说一句完整的话。", consent_missing: "需要同意声明。",
    },
    errors: {
      unsupported_language: "当前引擎不会说这种语言，CosyVoice 引擎可以。", busy: "服务器正忙，请稍后再试。",
      voice_not_found: "这个声音已不存在。", limit_exceeded: "内容太长或太多。", unsupported_format: "无法读取这个文件的格式。",
      synthesis_failed: "合成失败，请重试。", shutting_down: "服务器即将停止。", unauthorized: "密钥不正确。",
      internal: "服务器出错，请重试。",
    },
  },
};

let language = localStorage.getItem("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");

/** Current language, "en" or "zh". */
export const currentLanguage = () => language;

/** The word for a key. */
export const t = (key) => WORDS[language][key] ?? WORDS.en[key] ?? key;

/** A word from one of the tables `hints`, `items`, `advice`, `errors`, or the fallback. */
export const lookup = (table, key, fallback) => WORDS[language][table][key] ?? fallback ?? key;

/** Switch, remember, and rewrite the page. */
export function setLanguage(next) {
  language = next;
  localStorage.setItem("language", next);
  document.documentElement.lang = next === "zh" ? "zh-CN" : "en";
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of document.querySelectorAll("[data-t-label]")) {
    node.setAttribute("aria-label", t(node.dataset.tLabel));
    if (node.tagName === "BUTTON") node.title = t(node.dataset.tLabel);
  }
  for (const node of document.querySelectorAll("[data-t-placeholder]")) {
    node.placeholder = t(node.dataset.tPlaceholder);
  }
}
