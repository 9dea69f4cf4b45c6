// y = z w / sqrt(mean of squares + EPS), of a row in z, whose squares this thread has added up in s; w is row w_row of the weights.
{
constexpr int RED = 0;
//@include group_sum.h
}
s = gk_rsqrt(s / H + GK_FLOAT(EPS));
GK_UNROLL for (int j = 0; j < IT; ++j) {
  const int i = j * NS * 32 + GK_TID;
  if (i < V) {
    gk_fv<8> a = gk_load<8>(w + w_row * H + i * 8);
    GK_UNROLL for (int k = 0; k < 8; ++k) a.v[k] *= gk_round<T>(z[j].v[k] * s);
    gk_store8<T>::at(y + row * H + i * 8, a);
  }
}
