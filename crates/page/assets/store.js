// Conversations, which stay in this browser.

const NAME = "omnibus";

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("conversations", { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

let database;

async function run(mode, use) {
  database ??= open();
  const store = (await database).transaction("conversations", mode).objectStore("conversations");
  return new Promise((resolve, reject) => {
    const request = use(store);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** All, the latest first. */
export async function conversations() {
  const all = await run("readonly", (store) => store.getAll());
  return all.sort((one, other) => other.changed - one.changed);
}

export const keep = (conversation) => run("readwrite", (store) => store.put(conversation));
export const forget = (id) => run("readwrite", (store) => store.delete(id));
