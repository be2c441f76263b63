/** The source as images beside its text: chosen, dropped or pasted. As data: URLs, which are shown and sent alike. */

import { acceptDrops } from "./drops.js";

const $ = (id) => document.getElementById(id);

/** Shows the images, and calls `changed` with their URLs. */
export function imageSource(changed) {
  let urls = [];

  function show(now) {
    urls = now;
    $("pictures").replaceChildren(...urls.map(thumbnail));
    changed(urls);
  }

  async function take(files) {
    const added = files.filter(({ type }) => type.startsWith("image/"));
    if (added.length) show([...urls, ...(await Promise.all(added.map(read)))]);
  }

  $("image-file").addEventListener("change", () => {
    take([...$("image-file").files]);
    $("image-file").value = ""; // or the same file could not be chosen again
  });
  document.addEventListener("paste", (event) => $("images").hidden || take([...event.clipboardData.files]));
  acceptDrops($("images"), take);
  return { drop: () => show([]) };
}

function thumbnail(url, index) {
  const item = document.createElement("li");
  item.append(Object.assign(new Image(), { src: url, alt: `Image ${index + 1}` }));
  return item;
}

function read(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}
