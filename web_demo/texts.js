// Example texts, by language, in the order of `exampleNames`.

export const EXAMPLES = {
  en: [
    "Hello, and welcome. It is good to hear from you. How can I help you today?",
    "Turn left at the next corner, then walk straight on until you see the bridge. The museum is on the other side, next to a small café.",
    "Your order of 3 items comes to $47.50. It was shipped on March 3rd, 2026, and should arrive between 9:30 and 11 am.",
    "The lighthouse keeper had not spoken to anyone for eleven days when the boat appeared. At first it was only a dark line between two waves, so faint that he took it for a piece of driftwood. Then it turned, and the evening sun caught its sail. He put down his cup, went to the window, and counted the people on board: two, perhaps three. Nobody came out here in October. He took his coat from the hook, lit the lamp an hour early, and went down the hundred and twelve steps to the landing.",
  ],
  zh: [
    "您好，欢迎光临。很高兴听到您的声音，请问今天有什么可以帮您？",
    "在下一个路口左转，然后一直往前走，看到桥以后过桥。博物馆就在对面，旁边有一家小咖啡馆。",
    "您的订单共 3 件商品，合计 347.5 元，已于 3 月 3 日发货，预计上午 9 点半到 11 点之间送达。",
    "灯塔看守人已经十一天没有和任何人说过话，直到那条船出现。起初它只是两道浪之间的一条暗线，淡得让他以为是一块浮木。后来它转了个弯，夕阳照亮了船帆。他放下杯子，走到窗前，数了数船上的人：两个，也许三个。十月里从来没有人到这儿来。他从钩子上取下大衣，提前一个小时点亮了灯，走下一百一十二级台阶，来到码头。",
  ],
};
