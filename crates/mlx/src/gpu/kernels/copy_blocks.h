// Copies blocks of a pool within it, in place; no block is read and written.
// in: pool [blocks, ...]: WRITTEN although an input; pairs [2 n] int: from, to; out: done [64] float, unread: what uses
// the pool next depends on it. WORDS: 16-byte words of a block. groups (WORDS / 256 rounded up, n), 256 threads
const int i = GK_GROUP_X * 256 + GK_TID, pair = GK_GROUP_Y;
if (i < WORDS) {
  typedef gk_vec<gk_uint, 4> word;
  const GK_DEV word* from = reinterpret_cast<const GK_DEV word*>(pool) + (gk_long)pairs[2 * pair] * WORDS;
  GK_DEV word* to = reinterpret_cast<GK_DEV word*>(GK_WRITABLE(gk_uint, pool)) + (gk_long)pairs[2 * pair + 1] * WORDS;
  to[i] = from[i];
}
if (pair == 0 && i < 64) done[i] = 0;
