// Loads of packed weights for the products of wmm_code_products.h, which goes behind it. What includes it has: codes_of(k), where a lane's codes
// of row g + 8 k of w begin; K; BITS, GROUP, FLOAT4 and WHOLE as in wmm_body.h.
constexpr int QUARTERS = BITS == 4 ? 4 : 2;                   // 64 k in a load of weights, which is 128 bytes of a row
// Weights of rows g and g + 8, and scales or biases: those in use and the next ones, which change places. Copies from one to
// the other would wait for what was just requested.
gk_uint q[2][2][8];
Scales sc[2];
auto weights = [&](gk_uint (&to)[2][8], int load) {           // of 64 QUARTERS k
  GK_UNROLL for (int k = 0; k < 2; ++k) {
    const char* p = codes_of(k) + (gk_long)load * 128;
    GK_UNROLL for (int i = 0; i < 8; ++i) to[k][i] = 0;
    if (BITS == 4) {
      GK_UNROLL for (int i = 0; i < 4; ++i)
        if (WHOLE || (load * 4 + i) * 64 < K) { const uint2 v = gk_early2(p + i * 32); to[k][2 * i] = v.x; to[k][2 * i + 1] = v.y; }
    } else {
      GK_UNROLL for (int i = 0; i < 2; ++i)
        if (WHOLE || (load * 2 + i) * 64 < K) {
          const uint4 v = gk_early4(p + i * 64);
          to[k][4 * i] = v.x; to[k][4 * i + 1] = v.y; to[k][4 * i + 2] = v.z; to[k][4 * i + 3] = v.w;
        }
    }
  }
};
