// The results that groups left in part, added up by the last of them where the dialect can tell which one that is.
#ifdef GK_FUSED
if (GK_GROUPS_X > 1) {
  GK_SHARED(int, last, 1);
  GK_FENCE();
  GK_BARRIER();
  if (GK_TID == 0) last[0] = gk_atomic_inc(GK_WRITABLE(gk_uint, counter) + ITEM * HK + hk, GK_GROUPS_X - 1) == (gk_uint)(GK_GROUPS_X - 1);
  GK_BARRIER();
  if (last[0] == 1) {
    GK_FENCE();
    const int splits = GK_GROUPS_X;
//@include attn_parts.h
  }
}
#endif
