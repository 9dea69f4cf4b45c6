// Copies blocks of several pools within them, in place; no block is read and written.
// in: pool0 to pool15 [blocks, ...] of T, of blocks of one size: WRITTEN although inputs, the first of them as many as there are
// groups; pairs [2 n] int: from, to; out: done [64] float, unread: what uses the pools next depends on it. WORDS: 16-byte
// words of a block. groups (WORDS / 256 rounded up, n, pools), 256 threads
const int i = GK_GROUP_X * 256 + GK_TID, pair = GK_GROUP_Y, which = GK_GROUP_Z;
if (i < WORDS) {
  typedef gk_vec<gk_uint, 4> word;
  GK_DEV word* pool = 0;
#define GK_POOL(n) if (which == n) pool = reinterpret_cast<GK_DEV word*>(GK_WRITABLE(T, pool##n));
  GK_POOL(0) GK_POOL(1) GK_POOL(2) GK_POOL(3) GK_POOL(4) GK_POOL(5) GK_POOL(6) GK_POOL(7)
  GK_POOL(8) GK_POOL(9) GK_POOL(10) GK_POOL(11) GK_POOL(12) GK_POOL(13) GK_POOL(14) GK_POOL(15)
#undef GK_POOL
  gk_write(pool + (gk_long)pairs[2 * pair + 1] * WORDS + i, gk_read<word>(pool + (gk_long)pairs[2 * pair] * WORDS + i));
}
if (pair == 0 && which == 0 && i < 64) done[i] = 0;
