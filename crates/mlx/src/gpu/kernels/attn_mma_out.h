// The result of four elements of row r from e on: their sum x, its weight w and the largest score top.
if (r / G < rows) {
  const float sink = SINK_LOGITS ? gk_f(sinks[hk * G + r % G]) * 1.44269504f : 0;  // to powers of two
  gk_vec<T, 4> o;
  GK_UNROLL for (int k = 0; k < 4; ++k) o.v[k] = gk_to<T>::of(gk_weighted<SINK_LOGITS>(x[k], w, top, sink));
  *reinterpret_cast<gk_vec<T, 4>*>(out + ((gk_long)(row0 + r / G) * HQ + hk * G + r % G) * D + e) = o;
}
