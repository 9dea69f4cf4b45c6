// What a group's simd groups (KS of them with different keys) left in red, added up, four elements at a time: written, or, if
// the keys are split over groups, left in part for attn_mma_last.h.
GK_BARRIER();
for (int i = GK_TID; i < R * D / 4; i += NS * 32) {
  constexpr int SHARES = KS;
//@include attn_mma_sum.h
  if (GK_GROUPS_X == 1) {
//@include attn_mma_out.h
  } else {
    float* p = part + ((((gk_long)ITEM * HK + hk) * GK_GROUPS_X + GK_GROUP_X) * R + r) * RS;
    *reinterpret_cast<gk_vec<float, 4>*>(p + e) = gk_vec<float, 4>{{x[0], x[1], x[2], x[3]}};
    if (e == 0) *reinterpret_cast<gk_vec<float, 2>*>(p + D) = gk_vec<float, 2>{{top, w}};
  }
}
