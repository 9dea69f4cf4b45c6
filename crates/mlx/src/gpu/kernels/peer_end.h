// What ends an exchange: the rows of all ranks are added or written, and the exchange is counted.
// start, end, step: of this thread's pieces of the row; received(rank, piece): another rank's
constexpr int EACH = sizeof(Data) / sizeof(T);
for (int i = start; i < end; i += step) {
  gk_fv<EACH> sum;
  GK_UNROLL for (int r = 0; r < RANKS; ++r) {
    const Data data = r == RANK ? from[i] : received(r, i);
    if (SUM) {
      const gk_fv<EACH> part = gk_load<EACH>(reinterpret_cast<const T*>(&data));
      GK_UNROLL for (int k = 0; k < EACH; ++k) sum.v[k] = r == 0 ? part.v[k] : sum.v[k] + part.v[k];
    } else {
      reinterpret_cast<Data*>(y)[((gk_long)r * GK_GROUPS_Y + GK_GROUP_Y) * pieces + i] = data;
    }
  }
  if (SUM) {
    gk_vec<T, EACH> rounded;
    GK_UNROLL for (int k = 0; k < EACH; ++k) rounded.v[k] = gk_to<T>::of(sum.v[k]);
    reinterpret_cast<gk_vec<T, EACH>*>(y)[first + i] = rounded;
  }
}
// The last group to end counts the exchange: all have read the number by then.
GK_BARRIER();
if (GK_TID == 0) {
  GK_FENCE();
  const gk_uint groups = GK_GROUPS_X * GK_GROUPS_Y;
  if (gk_atomic_inc(own + 1, groups - 1) == groups - 1) *own = number;
}
