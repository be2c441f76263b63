/** Files that are dropped on a part of the page. */

/** Calls `take` with them, and marks the zone while they hover over it. */
export function acceptDrops(zone, take) {
  const over = (on) => (event) => {
    event.preventDefault();
    zone.classList.toggle("over", on);
  };
  zone.addEventListener("dragover", over(true));
  zone.addEventListener("dragleave", over(false));
  zone.addEventListener("drop", (event) => {
    over(false)(event);
    take([...event.dataTransfer.files]);
  });
}
