// What the page remembers between visits. Browsers may forbid it; then it forgets.

export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // kept for this visit only
  }
}

export function recall(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}
