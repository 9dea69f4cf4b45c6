// Rows of an item of kind 1 are copied from `other`, which another kernel computed.
if (items[ITEM * 8 + 5] == 1) {
  for (int i = GK_TID; i < rows * G * (D / 8); i += NS * 32) {
    const gk_long at = ((gk_long)(row0 + i / (G * (D / 8))) * HQ + hk * G) * D + i % (G * (D / 8)) * 8;
    gk_write(out + at, gk_read<gk_vec<T, 8>>(other + at));
  }
  return;
}
