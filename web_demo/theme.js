// Loaded before the page is painted, so that it comes in the right theme: the remembered one, or the system's.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // the browser forbids to remember
    }
  };
  const apply = () => {
    document.documentElement.dataset.theme = remembered() ?? (dark.matches ? "dark" : "light");
  };
  dark.addEventListener("change", apply);
  apply();
})();
