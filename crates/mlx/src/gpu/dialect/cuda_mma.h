// CUDA alone: tensor cores, asynchronous copies and streaming loads; goes behind the dialect where a kernel needs it.
// The emulator has functions of the same names.
#ifndef GK_EMU
// 16x8 += 16x16 * 16x8, of T
template <typename T> struct gk_tensor;
template <> struct gk_tensor<__nv_bfloat16> {
  static GK_FN void mma(float (&c)[4], const gk_uint (&a)[4], gk_uint b0, gk_uint b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static GK_FN gk_uint pair(float lo, float hi) {
    gk_uint r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
  }
};
template <> struct gk_tensor<__half> {
  static GK_FN void mma(float (&c)[4], const gk_uint (&a)[4], gk_uint b0, gk_uint b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static GK_FN gk_uint pair(float lo, float hi) {
    gk_uint r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
  }
};
// four 8x8 matrices of 16-bit elements; lane l names row l % 8 of matrix l / 8
GK_FN void gk_matrices(gk_uint (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((gk_uint)__cvta_generic_to_shared(row)) : "memory");
}
GK_FN void gk_matrices_t(gk_uint (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((gk_uint)__cvta_generic_to_shared(row)) : "memory");
}
// an 8x8 matrix of 16-bit elements turned: lane l has elements 2 (l % 4) and the next of row l / 4, before and after
GK_FN gk_uint gk_turned(gk_uint x) {
  gk_uint r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
  return r;
}
GK_FN uint4 gk_stream4(const void* p) {  // weights: read once, no place in L1
  uint4 r;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}
GK_FN uint2 gk_stream2(const void* p) {
  uint2 r;
  asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(p));
  return r;
}
GK_FN uint4 gk_kv4(const void* p) {  // keys and values: written by an earlier kernel, read once
  uint4 r;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}
GK_FN uint2 gk_kv2(const void* p) {  // packed ones: rows are no multiple of 32 bytes, so that their ends are shared
  uint2 r;
  asm volatile("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(p));
  return r;
}
GK_FN uint2 gk_cached2(const void* p) { return __ldg((const uint2*)p); }  // weights
// of four numbers of 16 bits those that there are, and zeros
GK_FN uint2 gk_cached_some(const void* p, int count) {
  const unsigned short* n = (const unsigned short*)p;
  uint2 v = {0, 0};
  if (count > 0) v.x = __ldg(n);
  if (count > 1) v.x |= (gk_uint)__ldg(n + 1) << 16;
  if (count > 2) v.y = __ldg(n + 2);
  if (count > 3) v.y |= (gk_uint)__ldg(n + 3) << 16;
  return v;
}
GK_FN gk_uint gk_cached1(const void* p) { return __ldg((const gk_uint*)p); }
GK_FN uint4 gk_cached4(const void* p) {  // written by an earlier kernel, which may have run beside this one
  uint4 r;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}
// 16 bytes to shared memory while the threads go on, or zeros
GK_FN void gk_copy16(void* to, const void* from, bool some) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((gk_uint)__cvta_generic_to_shared(to)), "l"(from), "r"(some ? 16 : 0) : "memory");
}
// 16 bytes likewise, of a row of which more is read soon: the 256 bytes around them are fetched to L2.
GK_FN void gk_copy16_on(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" :: "r"((gk_uint)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
// 4, 8 or 16 bytes likewise, through L1
template <int BYTES> GK_FN void gk_copy(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"((gk_uint)__cvta_generic_to_shared(to)), "l"(from), "n"(BYTES) : "memory");
}
GK_FN void gk_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> GK_FN void gk_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
GK_FN void gk_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#define GK_SIMD_BARRIER() __syncwarp()
// Barriers with numbers from 1 to 15 among THREADS threads, of which some wait for all and others only arrive.
template <int THREADS> GK_FN void gk_join(int barrier) { asm volatile("barrier.cta.sync %0, %1;" :: "r"(barrier), "n"(THREADS) : "memory"); }
template <int THREADS> GK_FN void gk_arrive(int barrier) { asm volatile("barrier.cta.arrive %0, %1;" :: "r"(barrier), "n"(THREADS) : "memory"); }
// Threadgroup memory whose size is an argument of the launch.
#define GK_SHARED_LARGE(T, name, n) extern __shared__ __align__(1024) T name[]
GK_FN gk_uint gk_bytes(gk_uint a, gk_uint b, gk_uint s) { return __byte_perm(a, b, s); }
GK_FN float gk_bits(gk_uint x) { return __uint_as_float(x); }
GK_FN gk_uint gk_word_of(float x) { return __float_as_uint(x); }
// Two nibbles and magic: one instruction, with two constants in registers (as immediates it would be two).
GK_FN gk_uint gk_nibbles(gk_uint w, gk_uint mask, gk_uint magic) {
  gk_uint r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(w), "r"(mask), "r"(magic));
  return r;
}
// Pairs of T, rounded once.
template <typename T> struct gk_pairs;
template <> struct gk_pairs<__nv_bfloat16> {
  static GK_FN gk_uint fma(gk_uint a, gk_uint b, gk_uint c) {
    gk_uint r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
  }
  // Before compute capability 9.0 they are only multiplied and added at once, here with -0 and 1.
  static GK_FN gk_uint times(gk_uint a, gk_uint b) {
#if __CUDA_ARCH__ >= 900
    gk_uint r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#else
    return fma(a, b, 0x80008000u);
#endif
  }
  static GK_FN gk_uint less(gk_uint a, gk_uint b) {
#if __CUDA_ARCH__ >= 900
    gk_uint r;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#else
    return fma(a, 0x3f803f80u, b ^ 0x80008000u);
#endif
  }
};
template <> struct gk_pairs<__half> {
  static GK_FN gk_uint fma(gk_uint a, gk_uint b, gk_uint c) {
    gk_uint r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
  }
  static GK_FN gk_uint times(gk_uint a, gk_uint b) {
    gk_uint r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
  }
  static GK_FN gk_uint less(gk_uint a, gk_uint b) {
    gk_uint r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
  }
};
GK_FN gk_uint gk_opaque(gk_uint x) { gk_uint r; asm volatile("mov.u32 %0, %1;" : "=r"(r) : "r"(x)); return r; }
#endif
// A number of tiles of columns as a type.
template <int N> struct gk_columns { static constexpr int COUNT = N; };
GK_FN gk_uint gk_word(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
// Codes of weights as pairs of T, each exact.
// Where a scale is applied to a sum of products, a number is (code + ABOVE) / TIMES of 4 bits (gk_nibbles with SUM_MAGIC), and
// code / TIMES of 8 bits (eight). With PAIR_MAGIC numbers of 4 bits are above their codes by the same magic.
// floats: E2M1 at bits 0 and 16 of a word. Their bits are a T that is smaller by a power of two, which a product mends.
template <typename T> struct gk_codes;
template <> struct gk_codes<__nv_bfloat16> {
  static constexpr gk_uint ONES = 0x3f803f80u, SUM_MAGIC = 0x43004300u, PAIR_MAGIC = 0x43004300u;
  static constexpr float ABOVE = 128, TIMES = 1;
  // Bytes at and at + 1 of a word: 2^23 + byte is a float with the byte at its end.
  static GK_FN gk_uint eight(gk_uint w, int at) {
    const float lo = gk_bits(gk_bytes(w, 0x4b000000u, at == 0 ? 0x7440 : 0x7442)) - 8388608.0f;
    const float hi = gk_bits(gk_bytes(w, 0x4b000000u, at == 0 ? 0x7441 : 0x7443)) - 8388608.0f;
    return gk_bytes(gk_word_of(lo), gk_word_of(hi), 0x7632);
  }
  static GK_FN gk_uint eight_itself(gk_uint w, int at) { return eight(w, at); }
  static GK_FN gk_uint floats(gk_uint w) { return gk_pairs<__nv_bfloat16>::times((w << 12 & 0x80008000u) | (w << 6 & 0x01c001c0u), 0x7e807e80u); }
  // The first and the second of a pair, and a pair of the same power of two.
  static GK_FN float low(gk_uint pair) { return gk_bits(pair << 16); }
  static GK_FN float high(gk_uint pair) { return gk_bits(pair & 0xffff0000u); }
  static GK_FN gk_uint twice(float power) { return gk_bytes(gk_word_of(power), gk_word_of(power), 0x3232); }
};
template <> struct gk_codes<__half> {
  // An f16 whose bits are a code is the code / 2^24, too small for its exponent.
  static constexpr gk_uint ONES = 0x3c003c00u, SUM_MAGIC = 0, PAIR_MAGIC = 0x64006400u;
  static constexpr float ABOVE = 0, TIMES = 16777216;
  static GK_FN gk_uint eight(gk_uint w, int at) { return gk_bytes(w, 0, at == 0 ? 0x4140 : 0x4342); }
  static GK_FN gk_uint eight_itself(gk_uint w, int at) { return gk_pairs<__half>::less(gk_bytes(w, 0x64646464u, at == 0 ? 0x4140 : 0x4342), PAIR_MAGIC); }
  static GK_FN gk_uint floats(gk_uint w) { return gk_pairs<__half>::times((w << 12 & 0x80008000u) | (w << 9 & 0x0e000e00u), 0x74007400u); }
  static GK_FN float low(gk_uint pair) { return gk_f(reinterpret_cast<const __half*>(&pair)[0]); }
  static GK_FN float high(gk_uint pair) { return gk_f(reinterpret_cast<const __half*>(&pair)[1]); }
  static GK_FN gk_uint twice(float power) { return gk_tensor<__half>::pair(power, power); }
};
// Codes of 4 bits, numbers with PAIR_MAGIC, times scales plus biases.
template <typename T> GK_FN gk_uint gk_affine2(gk_uint numbers, gk_uint scales, gk_uint biases) {
  return gk_pairs<T>::fma(gk_pairs<T>::less(numbers, gk_codes<T>::PAIR_MAGIC), scales, biases);
}
// What a row's groups of GROUP weights in 256 k share: scales or biases of T, or powers of two in a byte.
template <typename T, int GROUP, bool FLOAT4> struct gk_unit_scales {
  static constexpr int OF_UNIT = 256 / GROUP, BYTES = FLOAT4 ? OF_UNIT : OF_UNIT * 2;
  gk_uint words[BYTES / 4];
  // where a row's begin, `rows` behind the row whose are at p
  static GK_FN const char* row(const void* p, gk_long rows, int k) { return (const char*)p + rows * (k / GROUP) * (FLOAT4 ? 1 : 2); }
  template <bool WHOLE> static GK_FN gk_unit_scales load(const char* p, int unit, int k) {
    gk_unit_scales s;
    p += unit * BYTES;
    const int left = k / GROUP - unit * OF_UNIT;              // groups
    if (!WHOLE) {
      GK_UNROLL for (int i = 0; i < BYTES / 4; ++i) {
        s.words[i] = 0;
        GK_UNROLL for (int j = 0; j < (FLOAT4 ? 4 : 2); ++j)
          if (i * (FLOAT4 ? 4 : 2) + j < left) s.words[i] |= FLOAT4 ? (gk_uint)__ldg((const unsigned char*)p + i * 4 + j) << 8 * j : (gk_uint)__ldg((const unsigned short*)p + i * 2 + j) << 16 * j;
      }
    } else if (BYTES == 4) {
      s.words[0] = gk_cached1(p);
    } else {
      GK_UNROLL for (int i = 0; i < BYTES / 8; ++i) {
        const uint2 v = gk_cached2(p + i * 8);
        s.words[2 * i] = v.x;
        s.words[2 * i + 1] = v.y;
      }
    }
    return s;
  }
  // of a group, as a float
  GK_FN float of(int group) const {
    if (!FLOAT4) return (group & 1) ? gk_codes<T>::high(words[group / 2]) : gk_codes<T>::low(words[group / 2]);
    const gk_uint power = words[group / 4 % (BYTES / 4)] >> group % 4 * 8 & 255u;
    return gk_bits(power == 0 ? 0x00400000u : power << 23);
  }
  // the same twice, as T
  GK_FN gk_uint pair(int group) const {
    if (FLOAT4) return gk_codes<T>::twice(of(group));
    const gk_uint both = words[group / 2 % (BYTES / 4)];
    return gk_bytes(both, both, (group & 1) ? 0x3232 : 0x1010);
  }
};
// the two elements of a pair of T, added up
template <typename T> GK_FN float gk_sum2(gk_uint pair) {
  const T* x = reinterpret_cast<const T*>(&pair);
  return gk_f(x[0]) + gk_f(x[1]);
}
// Eight elements of a head (gk_head) for tensor cores. A code becomes an f16 of 1024 + code, in whose last bits it is.
template <int BITS> struct gk_eight {
  enum { ABOVE = 1024, MIDDLE = 1 << (BITS - 1) };  // what a key's number is above its code, and a value's below
  template <typename T> struct product { typedef __half type; };  // what is multiplied
  gk_uint w[BITS / 4];
  template <typename TP> GK_FN void read(const TP* head, int e0, bool some) {
    const TP* p = head + e0 * BITS / 32;
    GK_UNROLL for (int i = 0; i < BITS / 4; ++i) w[i] = 0;
    if (some && BITS == 8) {
      const uint2 x = gk_kv2(p);
      w[0] = x.x;
      w[BITS / 4 - 1] = x.y;
    } else if (some) {
      w[0] = *p;
    }
  }
  // scales and biases of NG of the head's ALL groups from `first` on; zeros if there is no head
  template <typename Head, int ALL, int NG, typename TP> static GK_FN void numbers(const TP* head, int first, float (&scale)[NG], float (&bias)[NG], bool some) {
    static_assert(NG <= 2, "one load of scales and biases, or one of each");
    const TP* p = head + Head::CODES + first;
    uint4 x = {0, 0, 0, 0};
    if (some && NG == 2) {
      if (ALL == 2) {
        x = gk_cached4(p);
      } else {
        const uint2 scales = gk_kv2(p), biases = gk_kv2(p + ALL);
        x = {scales.x, scales.y, biases.x, biases.y};
      }
    } else if (some && ALL == 1) {
      const uint2 both = gk_kv2(p);
      x = {both.x, 0, both.y, 0};
    } else if (some) {
      x = {p[0], 0, p[ALL], 0};
    }
    scale[0] = gk_bits(x.x);
    scale[NG - 1] = gk_bits(NG == 2 ? x.y : x.x);
    bias[0] = gk_bits(x.z);
    bias[NG - 1] = gk_bits(NG == 2 ? x.w : x.z);
  }
  // eight elements of a query, in the order of pair()
  template <typename T> static GK_FN void queries(uint2 (&q)[2]) {
    const gk_uint a = half2<T>(q[0].x), b = half2<T>(q[0].y), c = half2<T>(q[1].x), d = half2<T>(q[1].y);
    q[0] = {a, b};
    q[1] = {c, d};
    if (BITS == 4) {
      q[0] = {gk_bytes(a, c, 0x5410), gk_bytes(a, c, 0x7632)};
      q[1] = {gk_bytes(b, d, 0x5410), gk_bytes(b, d, 0x7632)};
    }
  }
  template <typename T> static GK_FN gk_uint half2(gk_uint pair) {
    const T* x = reinterpret_cast<const T*>(&pair);
    return gk_tensor<__half>::pair(gk_f(x[0]), gk_f(x[1]));
  }
  // elements 2 i and 2 i + 1; of 4 bits i and i + 4
  template <typename T> GK_FN gk_uint pair(int i) const {
    return BITS == 8 ? gk_bytes(w[i / 2 * (BITS == 8)], 0x64646464u, i % 2 ? 0x4342 : 0x4140) : gk_nibbles(w[0] >> i * 4, 0x000f000fu, 0x64006400u);
  }
  // element i of a and of b: codes less MIDDLE, since sums over many keys would lose what the larger numbers add
  template <typename T> static GK_FN gk_uint across(const gk_eight& a, const gk_eight& b, int i) {
    const int word = i / 4 * (BITS == 8);
    const gk_uint both = gk_bytes(a.w[word], b.w[word], BITS == 8 ? (i % 4 < 2 ? 0x5140 : 0x7362) : (i < 4 ? 0x5410 : 0x7632));
    const gk_uint codes = BITS == 8 ? gk_bytes(both, 0x64646464u, i % 2 ? 0x4342 : 0x4140) : gk_nibbles(both >> i % 4 * 4, 0x000f000fu, 0x64006400u);
    return gk_pairs<__half>::less(codes, BITS == 8 ? 0x64806480u : 0x64086408u);
  }
};
template <> struct gk_eight<0> {
  enum { ABOVE = 0, MIDDLE = 0 };
  template <typename T> struct product { typedef T type; };
  uint4 v;
  template <typename T> static GK_FN void queries(uint2 (&)[2]) {}
  template <typename Head, int ALL, int NG, typename TP> static GK_FN void numbers(const TP*, int, float (&)[NG], float (&)[NG], bool) {}
  template <typename TP> GK_FN void read(const TP* head, int e0, bool some) {
    v = {0, 0, 0, 0};
    if (some) v = gk_kv4(head + e0);
  }
  template <typename T> GK_FN gk_uint pair(int i) const { return gk_word(v, i); }
  template <typename T> static GK_FN gk_uint across(const gk_eight& a, const gk_eight& b, int i) {
    return gk_bytes(gk_word(a.v, i / 2), gk_word(b.v, i / 2), i % 2 ? 0x7632 : 0x5410);
  }
};
// Pieces of eight keys' and eight values' elements on their way to shared memory as T. Floats are copied while the
// threads go on; packed ones wait in registers from fetch to store.
template <typename Head, typename T, int BITS, int PER> struct gk_stage {
  typename Head::Eight k[PER], v[PER];
  bool some[PER];
  template <typename TP> GK_FN void fetch(int j, T*, T*, const TP* keys, const TP* values, int e0, bool is) {
    some[j] = is;
    if (is) {
      k[j] = Head::read(keys, e0);
      v[j] = Head::read(values, e0);
    }
  }
  GK_FN void store(int j, T* keys, T* values) const {
    put(keys, k[j], some[j]);
    put(values, v[j], some[j]);
  }
  static GK_FN void put(T* to, const typename Head::Eight& from, bool is) {
    uint4 words = {0, 0, 0, 0};
    if (is) {
      const gk_fv<8> x = Head::floats(from);
      words = {gk_tensor<T>::pair(x.v[0], x.v[1]), gk_tensor<T>::pair(x.v[2], x.v[3]),
               gk_tensor<T>::pair(x.v[4], x.v[5]), gk_tensor<T>::pair(x.v[6], x.v[7])};
    }
    *reinterpret_cast<uint4*>(to) = words;
  }
};
template <typename Head, typename T, int PER> struct gk_stage<Head, T, 0, PER> {
  GK_FN void fetch(int, T* to_keys, T* to_values, const T* keys, const T* values, int e0, bool is) {
    gk_copy16(to_keys, keys + e0, is);
    gk_copy16(to_values, values + e0, is);
  }
  GK_FN void store(int, T*, T*) const {}
};
