// A recurrence whose state is a matrix [VD, KD] for each head, a row after the other: L lanes hold a row of the matrix.
// DELTA, the gated delta rule: S = e^(-a dt) S; S += b (v - S k) k^T; y = S q, with k and q of length one, q over sqrt(KD).
// Else Mamba-2: S = e^(-a dt) S + dt v k^T; y = S q + skip v. dt is softplus(step + bias), in Mamba-2 within LOW and HIGH;
// a is e^a_log, b WRITE_SCALE sigmoid(write). With CHANNELS, each column of S is multiplied by a decay of its own.
// in:  mixed [rows, 2 HK KD + H VD] float, with queries, keys and values from QUERIES, KEYS and VALUES on; steps [rows, _],
//      floats, with each head's step from STEP on, or [rows, H KD] float with CHANNELS: decays; writes [rows, _], floats, with each
//      head's write from WRITE on (not read unless DELTA); a_log, dt_bias [H] float (not read if CHANNELS); skip [H], floats (not
//      read if DELTA); runs int (runs.h); pool [slots, H, VD, KD] float: WRITTEN although an input
// out: y [rows, H VD] float
// groups (VD / (32 / L NS) rounded up, H, RUNS), NS simd groups
// Source: arXiv 2412.06464 section 3, arXiv 2405.21060 section 6.
constexpr int PER = KD / L, M = 2 * HK * KD + H * VD;
const int RUN = GK_GROUP_Z, RUNS = GK_GROUPS_Z;
//@include runs.h
const int lane = GK_LANE, sub = lane % L, h = GK_GROUP_Y, kh = h / (H / HK), P = steps_shape[1], W = writes_shape[1];
const int v = (GK_GROUP_X * NS + GK_SIMD) * (32 / L) + lane / L;
const bool on = v < VD;
if (idle) {
  for (int r = first; r < first + length; ++r)
    if (on && sub == 0) y[(gk_long)r * H * VD + h * VD + v] = 0;
} else {
  gk_fv<4> s[PER / 4];
  GK_UNROLL for (int j = 0; j < PER / 4; ++j) {
    GK_UNROLL for (int i = 0; i < 4; ++i) s[j].v[i] = 0;
    if (on && from >= 0) s[j] = gk_load<4>(pool + (((gk_long)from * H + h) * VD + v) * KD + j * 4 * L + sub * 4);
  }
  const float rate = CHANNELS ? 0 : -gk_exp(a_log[h]), bias = CHANNELS ? 0 : dt_bias[h], through = DELTA ? 0 : gk_f(skip[h]);
  int row = first;
  for (int r = RUN; r <= LAST; ++r) {
    for (const int end = row + runs[r * 4 + 1]; row < end; ++row) {
      const GK_DEV float* m = mixed + (gk_long)row * M;
      gk_fv<4> k[PER / 4], q[PER / 4];
      GK_UNROLL for (int j = 0; j < PER / 4; ++j) {
        k[j] = gk_load<4>(m + KEYS + kh * KD + j * 4 * L + sub * 4);
        q[j] = gk_load<4>(m + QUERIES + kh * KD + j * 4 * L + sub * 4);
      }
      const float value = on ? m[VALUES + h * VD + v] : 0;
      float dt = 0, decay = 1;
      if (CHANNELS) {
        GK_UNROLL for (int j = 0; j < PER / 4; ++j) {
          const gk_fv<4> left = gk_load<4>(steps + (gk_long)row * P + h * KD + j * 4 * L + sub * 4);
          GK_UNROLL for (int i = 0; i < 4; ++i) s[j].v[i] *= left.v[i];
        }
      } else {
        const float step = gk_f(steps[(gk_long)row * P + STEP + h]) + bias;
        dt = step > 15.0f ? step : step < -15.0f ? gk_exp(step) : gk_log(1.0f + gk_exp(step));
        if (!DELTA) dt = dt < GK_FLOAT(LOW) ? GK_FLOAT(LOW) : dt > GK_FLOAT(HIGH) ? GK_FLOAT(HIGH) : dt;
        decay = gk_exp(rate * dt);                            // used late: the sums below need not wait for it
      }
      float written = dt * value, k_scale = 1, q_scale = 1;
      if (DELTA) {
        float kk = 0, qq = 0, dot = 0;
        GK_UNROLL for (int j = 0; j < PER / 4; ++j)
          GK_UNROLL for (int i = 0; i < 4; ++i) {
            kk += k[j].v[i] * k[j].v[i];
            qq += q[j].v[i] * q[j].v[i];
            dot += s[j].v[i] * k[j].v[i];
          }
        GK_UNROLL for (int o = 1; o < L; o <<= 1) {
          kk += gk_shfl_xor(kk, o);
          qq += gk_shfl_xor(qq, o);
          dot += gk_shfl_xor(dot, o);
        }
        k_scale = gk_rsqrt(kk + 1e-6f);
        q_scale = gk_rsqrt(qq + 1e-6f) * gk_rsqrt((float)KD);
        const float beta = GK_FLOAT(WRITE_SCALE) / (1.0f + gk_exp(-gk_f(writes[(gk_long)row * W + WRITE + h])));
        written = beta * (value - decay * dot * k_scale);
      }
      float read = 0;
      GK_UNROLL for (int j = 0; j < PER / 4; ++j)
        GK_UNROLL for (int i = 0; i < 4; ++i) {
          s[j].v[i] = decay * s[j].v[i] + written * (k[j].v[i] * k_scale);
          read += s[j].v[i] * q[j].v[i];
        }
      GK_UNROLL for (int o = 1; o < L; o <<= 1) read += gk_shfl_xor(read, o);
      if (on && sub == 0) y[(gk_long)row * H * VD + h * VD + v] = read * q_scale + through * value;
    }
    GK_UNROLL for (int j = 0; j < PER / 4; ++j) {
      gk_vec<float, 4> out;
      GK_UNROLL for (int i = 0; i < 4; ++i) out.v[i] = s[j].v[i];
      const gk_long at = (((gk_long)runs[r * 4 + 2] * H + h) * VD + v) * KD + j * 4 * L + sub * 4;
      if (on) gk_write(GK_WRITABLE(float, pool) + at, out);
    }
  }
}
