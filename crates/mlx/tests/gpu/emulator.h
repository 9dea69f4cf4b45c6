// Runs a kernel on the CPU: the threads of a group are fibers that switch at barriers and simd operations, in an order
// shuffled by a seed. Threadgroup memory is filled with 0xff before each group, and arrays end where memory does.
// EMULATE_CUDA or EMULATE_METAL chooses which spelling of built-ins, types and functions exists; nothing else does.
#pragma once
#ifndef _GNU_SOURCE
#define _XOPEN_SOURCE 700
#endif
#define _DARWIN_C_SOURCE
#define GK_EMU 1
// A jump to another fiber's stack is no mistake.
#undef _FORTIFY_SOURCE
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

namespace emu {
struct bf16 {
  uint16_t b;
  bf16() = default;
  explicit bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    b = f != f ? 0x7fc0 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  }
  explicit operator float() const {
    uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
  }
};

struct f16 {
  uint16_t b;
  f16() = default;
  explicit f16(float f) {  // to nearest even, by way of double arithmetic
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t s = u >> 31 << 15;
    float a = std::fabs(f);
    if (a != a) b = 0x7e00;
    else if (a >= 65520.0f) b = s | 0x7c00;
    else if (a < 0x1p-14f) b = s | (uint16_t)std::nearbyint((double)a * 0x1p24);
    else {
      int e;
      double m = std::frexp((double)a, &e);
      b = s + (uint16_t)((e + 14) << 10) + (uint16_t)(std::nearbyint(m * 2048) - 1024);
    }
  }
  explicit operator float() const {
    int e = (b >> 10) & 31, m = b & 1023;
    float v = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp((float)(m + 1024), e - 25) : std::ldexp((float)m, -24);
    return b >> 15 ? -v : v;
  }
};

struct D3 { unsigned x, y, z; };
struct Simd { int arrived = 0; alignas(16) char slot[2][32][64]; };
struct Copy { void* to; char bytes[16]; int size = 16; };
// Where a fiber, or what runs the fibers, goes on. A context starts a fiber; jumps do the rest, because they need no system call.
struct Place {
  jmp_buf jump;
  ucontext_t start;
  bool started;
};
[[gnu::noinline]] inline void go(Place& from, Place& to) {
  if (_setjmp(from.jump)) return;
  if (to.started) _longjmp(to.jump, 1);
  to.started = true;
  setcontext(&to.start);
}
struct Fiber {
  Place at;
  int numbered[16];  // how often it came to each barrier with a number
  std::unique_ptr<char[]> stack;
  D3 tid;
  int index;
  bool done;
  const int* wait;
  int target, simd_seq, bar_seq;
  Simd* simd;
  std::vector<std::vector<Copy>> copies;  // asynchronous ones: committed groups, then the open one
  std::vector<std::vector<std::function<void()>>> products;  // of warpgroups, likewise
};
inline Place home{{}, {}, true};
inline std::vector<Fiber> fibers;
inline std::vector<Simd> simds;
inline Fiber* cur;
inline D3 group, groups;
inline int threads, bar;
inline int numbered[16];  // threads that came to each barrier with a number
inline int slow;   // which simd groups rest: none, the last four, the others, every other one
inline bool late;  // what is asynchronous happens as late as it may, or at once
inline std::function<void()>* body;
inline std::vector<std::pair<void*, size_t>> shared;
inline bool reg(void* p, size_t n) {
  shared.push_back({p, n});
  memset(p, 0xff, n);
  return true;
}
[[noreturn]] inline void fail(const char* what) {
  fprintf(stderr, "emulator: %s\n", what);
  _exit(3);
}
inline void entry() {
  (*body)();
  cur->done = true;
  go(cur->at, home);
}
inline void wait_for(const int* c, int target) {
  if (*c >= target) return;
  cur->wait = c;
  cur->target = target;
  go(cur->at, home);
}
inline void barrier() {
  ++bar;
  wait_for(&bar, ++cur->bar_seq * threads);
}
// Barriers with numbers, of n threads each time: some wait for all, others only come.
inline int came(int barrier, int n) {
  if (barrier < 1 || barrier > 15 || n % 32) fail("a barrier that there is not");
  ++numbered[barrier];
  return ++cur->numbered[barrier] * n;
}
inline void join(int barrier, int n) {
  const int target = came(barrier, n);
  wait_for(&numbered[barrier], target);
}
// Every lane shows n bytes to its simd group and gets the table of all 32.
inline const char (*exchange(const void* v, size_t n))[64] {
  Simd* s = cur->simd;
  int p = cur->simd_seq & 1;
  memcpy(s->slot[p][cur->index & 31], v, n);
  ++s->arrived;
  wait_for(&s->arrived, ++cur->simd_seq * 32);
  return s->slot[p];
}
template <typename T> T read(T v, int lane) {
  auto t = exchange(&v, sizeof v);
  T r;
  memcpy(&r, t[lane & 31], sizeof r);
  return r;
}
inline void copy(void* to, const void* from, bool some) {
  Copy c{to, {}};
  if ((uintptr_t)to % 16) fail("misaligned copy to threadgroup memory");
  if (some && (uintptr_t)from % 16) fail("misaligned copy");
  if (some) memcpy(c.bytes, from, 16);
  if (!late) memcpy(to, c.bytes, 16);
  else cur->copies.back().push_back(c);
}
inline void arrived(size_t open) {  // all groups of copies but the last `open`
  auto& all = cur->copies;
  while (all.size() > open + 1) {
    for (auto& c : all.front()) memcpy(c.to, c.bytes, c.size);
    all.erase(all.begin());
  }
}
inline void all_arrived() {
  cur->copies.emplace_back();
  arrived(0);
}

inline void multiply(std::function<void()> product) {
  if (late) cur->products.back().push_back(std::move(product));
  else product();
}
inline void multiplied(size_t open) {  // all groups of products but the last `open`
  auto& all = cur->products;
  while (all.size() > open + 1) {
    for (auto& product : all.front()) product();
    all.erase(all.begin());
  }
}

inline void prepare(Fiber& f, int i, int tx) {
  constexpr size_t stack = 256 << 10;
  if (!f.stack) f.stack.reset(new char[stack]);
  f.index = i;
  f.tid = {(unsigned)(i % tx), (unsigned)(i / tx), 0};
  f.done = false;
  f.wait = nullptr;
  f.simd_seq = f.bar_seq = 0;
  memset(f.numbered, 0, sizeof f.numbered);
  f.simd = &simds[i / 32];
  f.copies.assign(1, {});
  f.products.assign(1, {});
  f.at.started = false;
  getcontext(&f.at.start);
  f.at.start.uc_stack.ss_sp = f.stack.get();
  f.at.start.uc_stack.ss_size = stack;
  f.at.start.uc_link = nullptr;  // a fiber goes home at its end
  makecontext(&f.at.start, entry, 0);
}
// Runs fibers in turns until all are done. Simd groups rest at random, so that some are far ahead of others; above 100 a seed has
// the last four, or the others, rest most of the time, above 200 every other one.
inline void run_group(unsigned& seed) {
  std::vector<int> order(threads);
  for (int i = 0; i < threads; ++i) order[i] = i;
  for (int left = threads; left;) {
    bool moved = false, rest = false;
    for (int i = threads - 1; i > 0; --i) {
      seed = seed * 1664525u + 1013904223u;
      std::swap(order[i], order[(seed >> 8) % (i + 1)]);
    }
    seed = seed * 1664525u + 1013904223u;
    const unsigned resting = seed >> 8 & seed >> 16;
    const bool all_run = (seed >> 20 & 15) == 0;
    for (int i : order) {
      Fiber& b = fibers[i];
      if (b.done || (b.wait && *b.wait < b.target)) continue;
      const bool is_last = i / 32 >= threads / 32 - 4;
      const bool is_slow = slow == 3 ? i / 32 % 2 : slow == 1 ? is_last : slow == 2 && !is_last;
      if ((is_slow && !all_run) || resting >> (i / 32 % 16) & 1) { rest = true; continue; }
      b.wait = nullptr;
      cur = &b;
      moved = true;
      go(home, b.at);
      if (b.done) --left;
    }
    if (!moved && !rest) fail("deadlock: a barrier or simd operation is not reached by all threads");
  }
}
inline void run(const int* grid, int tx, unsigned seed, std::function<void()> f) {
  body = &f;
  threads = tx;
  late = seed & 1;
  slow = seed <= 100 ? 0 : seed > 200 ? 3 : seed & 2 ? 1 : 2;
  groups = {(unsigned)grid[0] / tx, (unsigned)grid[1], (unsigned)grid[2]};
  if (grid[0] % tx || threads % 32) fail("the grid is no multiple of the group");
  if ((int)fibers.size() < threads) { fibers.clear(); fibers.resize(threads); }
  for (unsigned z = 0; z < groups.z; ++z)
    for (unsigned y = 0; y < groups.y; ++y)
      for (unsigned x = 0; x < groups.x; ++x) {
        group = {x, y, z};
        bar = 0;
        memset(numbered, 0, sizeof numbered);
        simds.assign(threads / 32, Simd());
        for (auto& s : shared) memset(s.first, 0xff, s.second);
        for (int i = 0; i < threads; ++i) prepare(fibers[i], i, tx);
        run_group(seed);
      }
  shared.clear();
}
template <typename T> T get(const void* p) {
  if ((uintptr_t)p % sizeof(T)) fail("misaligned load");
  T r;
  memcpy(&r, p, sizeof r);
  return r;
}

// The arrays of a launch, in one file: count, seed, grid, threads, then for each array its bytes' number, eight
// dimensions and bytes. What is behind an array cannot be read or written.
struct Launch {
  int grid[3], threads;
  unsigned seed;
  std::vector<char*> arrays, fronts;  // what is in front of an array may not change
  std::vector<int64_t> bytes;
  std::vector<std::vector<int>> shapes;
  void load(const char* path) {
    FILE* f = fopen(path, "rb");
    int32_t head[6];
    if (!f || fread(head, 4, 6, f) != 6) fail("cannot read the launch");
    seed = head[1]; grid[0] = head[2]; grid[1] = head[3]; grid[2] = head[4]; threads = head[5];
    const int64_t page = sysconf(_SC_PAGESIZE);
    for (int i = 0; i < head[0]; ++i) {
      int64_t n;
      std::vector<int> shape(8);
      if (fread(&n, 8, 1, f) != 1 || fread(shape.data(), 4, 8, f) != 8) fail("cannot read an array");
      const int64_t room = (n + 15) / 16 * 16, pages = (room + page - 1) / page + 2;
      char* p = (char*)mmap(nullptr, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED || mprotect(p + page, (pages - 2) * page, PROT_READ | PROT_WRITE)) fail("no memory");
      char* begin = p + page;
      p += (pages - 1) * page - room;
      memset(begin, 0xa5, p - begin);
      fronts.push_back(begin);
      if (fread(p, 1, n, f) != (size_t)n) fail("cannot read an array's bytes");
      arrays.push_back(p); bytes.push_back(n); shapes.push_back(shape);
    }
    fclose(f);
  }
  void store(const char* path) {
    for (size_t i = 0; i < arrays.size(); ++i)
      for (char* p = fronts[i]; p < arrays[i]; ++p)
        if (*p != (char)0xa5) fail("a write in front of an array");
    FILE* f = fopen(path, "wb");
    for (size_t i = 0; i < arrays.size(); ++i)
      if (!f || fwrite(arrays[i], 1, bytes[i], f) != (size_t)bytes[i]) fail("cannot write the results");
    fclose(f);
  }
};
}  // namespace emu

inline unsigned emu_launch = 0;
#define GK_SHARED(T, name, n) alignas(16) static T name[n]; static unsigned name##_run = 0; \
  if (name##_run != emu_launch) { name##_run = emu_launch; emu::reg(name, sizeof(name)); }

#define GK_SHARED_LARGE(T, name, n) alignas(1024) static T name[n]; static unsigned name##_run = 0; \
  if (name##_run != emu_launch) { name##_run = emu_launch; emu::reg(name, sizeof(name)); }

#ifdef EMULATE_CUDA
typedef emu::bf16 __nv_bfloat16;
typedef emu::f16 __half;
#define __device__
#define __forceinline__ inline
#define threadIdx (emu::cur->tid)
#define blockIdx (emu::group)
#define gridDim (emu::groups)
#define __syncthreads() emu::barrier()
#define __threadfence()
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
template <typename T> T __shfl_sync(unsigned, T v, int lane) { return emu::read(v, lane); }
template <typename T> T __shfl_xor_sync(unsigned, T v, int m) { return emu::read(v, (emu::cur->index & 31) ^ m); }
inline float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
inline float __half2float(__half x) { return (float)x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline float __int_as_float(int x) { float f; memcpy(&f, &x, 4); return f; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline unsigned atomicAdd(unsigned* p, unsigned n) { *p += n; return *p - n; }
inline unsigned atomicOr(unsigned* p, unsigned n) { const unsigned before = *p; *p |= n; return before; }
inline unsigned atomicInc(unsigned* p, unsigned top) {
  unsigned o = *p;
  *p = o >= top ? 0 : o + 1;
  return o;
}
// cuda_mma.h's functions
template <typename T> struct gk_tensor {
  static float half(const char* lane, int word, int hi) {
    unsigned u;
    memcpy(&u, lane + 4 * word, 4);
    T h;
    h.b = hi ? u >> 16 : u & 0xffff;
    return (float)h;
  }
  static void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    auto t = emu::exchange(mine, sizeof mine);
    int lane = emu::cur->index & 31, g = lane >> 2, q = lane & 3;
    for (int o = 0; o < 4; ++o) {
      int row8 = o >> 1, col = q * 2 + (o & 1);
      float s = c[o];
      for (int k = 0; k < 16; ++k)
        s += half(t[g * 4 + (k & 7) / 2], row8 + (k >= 8 ? 2 : 0), k & 1) * half(t[col * 4 + (k & 7) / 2], k >= 8 ? 5 : 4, k & 1);
      c[o] = s;
    }
  }
  static unsigned pair(float lo, float hi) { return T(lo).b | (unsigned)T(hi).b << 16; }
};
inline void emu_matrices(unsigned (&r)[4], const void* row, bool turned) {
  if ((uintptr_t)row % 16) emu::fail("misaligned row of a matrix");
  auto t = emu::exchange(&row, sizeof row);
  int lane = emu::cur->index & 31, g = lane >> 2, q = lane & 3;
  auto at = [&](int m, int i, int j) {
    const uint16_t* p;
    memcpy(&p, t[m * 8 + i], sizeof p);
    return (unsigned)p[j];
  };
  for (int m = 0; m < 4; ++m)
    r[m] = turned ? at(m, 2 * q, g) | at(m, 2 * q + 1, g) << 16 : at(m, g, 2 * q) | at(m, g, 2 * q + 1) << 16;
  emu::read(0, 0);  // no lane goes on and writes before all have read
}
inline void gk_matrices(unsigned (&r)[4], const void* row) { emu_matrices(r, row, false); }
inline void gk_matrices_t(unsigned (&r)[4], const void* row) { emu_matrices(r, row, true); }
inline unsigned gk_turned(unsigned x) {
  auto t = emu::exchange(&x, sizeof x);
  const int lane = emu::cur->index & 31, g = lane >> 2, q = lane & 3;
  unsigned r = 0;
  for (int i = 0; i < 2; ++i) {
    uint16_t h;
    memcpy(&h, t[(2 * q + i) * 4 + g / 2] + g % 2 * 2, 2);
    r |= (unsigned)h << 16 * i;
  }
  return r;
}
template <typename T> struct gk_pairs {
  static float half(unsigned pair, int at) {
    T x;
    x.b = pair >> at;
    return (float)x;
  }
  template <typename F> static unsigned each(F f) { return T(f(0)).b | (unsigned)T(f(16)).b << 16; }
  static unsigned fma(unsigned a, unsigned b, unsigned c) { return each([=](int at) { return half(a, at) * half(b, at) + half(c, at); }); }
  static unsigned times(unsigned a, unsigned b) { return each([=](int at) { return half(a, at) * half(b, at); }); }
  static unsigned less(unsigned a, unsigned b) { return each([=](int at) { return half(a, at) - half(b, at); }); }
};
// cuda_wgmma.h's functions. Each simd group computes its 16 rows; what is missing between the four is not noticed.
inline unsigned long long gk_tiles(const void* first, int across, int down) {
  if ((uintptr_t)first % 16 || across % 128 || down % 128) emu::fail("misaligned tiles");
  return (unsigned long long)(uintptr_t)first | (unsigned long long)(across / 128) << 48 | (unsigned long long)(down / 128) << 56;
}
// Marked by a zero where the others have what is down.
inline unsigned long long gk_swizzled(const void* first, int across) {
  if ((uintptr_t)first % 16 || across % 128) emu::fail("misaligned rows");
  return (unsigned long long)(uintptr_t)first | (unsigned long long)(across / 128) << 48;
}
inline unsigned long long gk_further(unsigned long long tiles, int bytes) { return tiles + bytes; }
inline const char* emu_swizzled(const char* at) { return (const char*)((uintptr_t)at ^ ((uintptr_t)at >> 7 & 7) << 4); }
template <typename T, int MT> struct gk_warpgroup {
  static void start(float (&c)[MT][4], const unsigned (&a)[4], unsigned long long tiles) { product<false, false>(c, shared_rows(a), tiles); }
  static void mma(float (&c)[MT][4], const unsigned (&a)[4], unsigned long long tiles) { product<true, false>(c, shared_rows(a), tiles); }
  static void mma_t(float (&c)[MT][4], const unsigned (&a)[4], unsigned long long tiles) { product<true, true>(c, shared_rows(a), tiles); }
  static void mma_shared(float (&c)[MT][4], unsigned long long rows, unsigned long long tiles) {
    const char* first = (const char*)(uintptr_t)(rows & 0xffffffffffffull);
    const int row = emu::cur->index / 32 % 4 * 16 + (emu::cur->index & 31) / 4;
    product<true, false>(c, [=](int row8, int k) { return number(emu_swizzled(first + (row + row8 * 8) * 128 + k * 2)); }, tiles);
  }
  static float number(const char* at) {
    T x;
    memcpy(&x.b, at, 2);
    return (float)x;
  }
  // element k of a lane's first or second row
  static auto shared_rows(const unsigned (&a)[4]) {
    struct Rows { unsigned word[4][4]; } rows;  // of the four lanes that share two rows
    auto t = emu::exchange(a, sizeof a);
    for (int i = 0; i < 4; ++i) memcpy(rows.word[i], t[(emu::cur->index & 31) / 4 * 4 + i], sizeof rows.word[i]);
    return [=](int row8, int k) {
      T x;
      x.b = rows.word[(k & 7) / 2][row8 + (k >= 8 ? 2 : 0)] >> (k & 1) * 16;
      return (float)x;
    };
  }
  template <bool ADDS, bool TURNED, typename Rows> static void product(float (&c)[MT][4], Rows rows, unsigned long long tiles) {
    const int q = emu::cur->index & 3;
    const char* first = (const char*)(uintptr_t)(tiles & 0xffffffffffffull);
    const int across = (tiles >> 48 & 255) * 128, down = (tiles >> 56 & 255) * 128;
    emu::multiply([=, &c] {
      for (int n = 0; n < MT; ++n)
        for (int o = 0; o < 4; ++o) {
          const int col = q * 2 + (o & 1);
          float s = ADDS ? c[n][o] : 0;
          for (int k = 0; k < 16; ++k) {
            const char* from;
            if (down == 0) {
              const int in_row = n * 8 + col;
              from = emu_swizzled(TURNED ? first + (in_row >> 6) * across + (in_row & 63) * 2 + k * 128 : first + in_row * 128 + k * 2);
            } else {
              from = first + (k >> 3) * across + n * down + (TURNED ? (k & 7) * 16 + col * 2 : col * 16 + (k & 7) * 2);
            }
            s += rows(o >> 1, k) * number(from);
          }
          c[n][o] = s;
        }
    });
  }
};
// A phase ends when all its bytes are there: at once, or when a thread waits for it.
struct alignas(8) gk_arrival { int begun, ended; };
struct emu_phase { gk_arrival* arrival; int left; std::vector<std::function<void()>> copies; };
inline std::vector<emu_phase> emu_phases;  // those that have not ended, in the order in which they began
inline void gk_no_arrivals(gk_arrival* arrivals, int count) {
  memset(arrivals, 0, count * sizeof *arrivals);
  emu_phases.clear();
}
inline void emu_end(emu_phase& phase) {
  for (auto& copy : phase.copies) copy();
  ++phase.arrival->ended;
  emu_phases.erase(emu_phases.begin() + (&phase - emu_phases.data()));
}
inline void gk_expect(gk_arrival* arrival, int bytes) {
  for (auto& phase : emu_phases)
    if (phase.arrival == arrival) emu::fail("a phase that begins before the one in front of it has ended");
  ++arrival->begun;
  emu_phases.push_back({arrival, bytes, {}});
}
inline void gk_fetch(void* to, const void* from, int bytes, gk_arrival* arrival) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16) emu::fail("a misaligned copy");
  for (auto& phase : emu_phases) {
    if (phase.arrival != arrival) continue;
    if (phase.left < bytes) break;
    phase.left -= bytes;
    phase.copies.push_back([=] { memcpy(to, from, bytes); });
    if (phase.left == 0 && !emu::late) emu_end(phase);
    return;
  }
  emu::fail("a copy that no phase expects");
}
inline void gk_fetched(gk_arrival* arrival, int number) {
  emu::wait_for(&arrival->begun, number + 1);
  for (auto& phase : emu_phases)
    if (phase.arrival == arrival && phase.left == 0) { emu_end(phase); break; }
  emu::wait_for(&arrival->ended, number + 1);
}
inline bool gk_is_last(unsigned* counter, int of) { return ++*counter % of == 0; }
template <int MT> void gk_settled(float (&)[MT][4]) {}
inline void gk_before_wait(float) {}
template <int THREADS> void gk_join(int barrier) { emu::join(barrier, THREADS); }
template <int THREADS> void gk_arrive(int barrier) { emu::came(barrier, THREADS); }
template <int N> void gk_more_registers() {}
template <int N> void gk_fewer_registers() {}
inline void gk_warpgroup_begin() {}
inline void gk_warpgroup_commit() { emu::cur->products.emplace_back(); }
template <int N> void gk_warpgroup_wait() { emu::multiplied(N); }
inline void gk_shared_written() {}
// cuda_peers.h's functions. Addresses of ranks count from an array.
inline void gk_push(char* to, unsigned long long data, unsigned flag) {
  const unsigned packet[4] = {(unsigned)data, flag, (unsigned)(data >> 32), flag};
  memcpy(to, packet, sizeof packet);
}
inline unsigned long long gk_pull(const char* from, unsigned flag) {
  unsigned packet[4];
  memcpy(packet, from, sizeof packet);
  if (packet[1] != flag || packet[3] != flag) emu::fail("a packet that does not come");
  return (unsigned long long)packet[2] << 32 | packet[0];
}
struct alignas(16) gk_bytes16 { unsigned v[4]; };
inline gk_bytes16 gk_arrived(const char* from) { return emu::get<gk_bytes16>(from); }
inline void gk_post(char* to, unsigned flag) { memcpy(to, &flag, sizeof flag); }
inline void gk_await(const char* from, unsigned flag) {
  if (memcmp(from, &flag, sizeof flag)) emu::fail("a flag that does not come");
}
inline char* gk_peer(const unsigned long long* addresses, const void* memory, int rank) {
  return (char*)memory + addresses[rank];
}
inline uint4 gk_early4(const void* p) { return emu::get<uint4>(p); }
inline uint2 gk_early2(const void* p) { return emu::get<uint2>(p); }
inline uint4 gk_stream4(const void* p) { return emu::get<uint4>(p); }
inline uint2 gk_stream2(const void* p) { return emu::get<uint2>(p); }
inline uint4 gk_cached4(const void* p) { return emu::get<uint4>(p); }
inline uint2 gk_cached2(const void* p) { return emu::get<uint2>(p); }
inline unsigned gk_cached1(const void* p) { return emu::get<unsigned>(p); }
template <typename T> T __ldg(const T* p) { return emu::get<T>(p); }
inline uint2 gk_cached_some(const void* p, int count) {
  uint16_t n[4] = {0, 0, 0, 0};
  for (int i = 0; i < 4 && i < count; ++i) n[i] = emu::get<uint16_t>((const uint16_t*)p + i);
  return {n[0] | (unsigned)n[1] << 16, n[2] | (unsigned)n[3] << 16};
}
inline uint2 gk_kv2(const void* p) { return emu::get<uint2>(p); }
inline uint4 gk_kv4(const void* p) { return emu::get<uint4>(p); }
inline unsigned gk_nibbles(unsigned w, unsigned mask, unsigned magic) { return (w & mask) | magic; }
inline unsigned gk_opaque(unsigned x) { return x; }
inline void gk_copy16(void* to, const void* from, bool some) { emu::copy(to, from, some); }
inline void gk_copy16_on(void* to, const void* from) { emu::copy(to, from, true); }
template <int BYTES> void gk_copy(void* to, const void* from) {
  if ((uintptr_t)to % BYTES || (uintptr_t)from % BYTES) emu::fail("misaligned copy");
  emu::Copy c{to, {}, BYTES};
  memcpy(c.bytes, from, BYTES);
  if (!emu::late) memcpy(to, c.bytes, BYTES); else emu::cur->copies.back().push_back(c);
}
inline void gk_commit() { emu::cur->copies.emplace_back(); }
template <int N> void gk_wait() { emu::arrived(N); }
inline void gk_wait_all() { emu::all_arrived(); }
#define GK_SIMD_BARRIER() emu::read(0, 0)
inline unsigned gk_bytes(unsigned a, unsigned b, unsigned s) {
  uint64_t v = (uint64_t)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= (unsigned)(v >> (8 * ((s >> (4 * i)) & 7)) & 255) << (8 * i);
  return r;
}
inline float gk_bits(unsigned x) { float f; memcpy(&f, &x, 4); return f; }
inline unsigned gk_word_of(float x) { unsigned u; memcpy(&u, &x, 4); return u; }
#endif

#ifdef EMULATE_METAL
typedef emu::bf16 bfloat16_t;
typedef emu::f16 float16_t;
typedef unsigned uint;
typedef unsigned short ushort;
#define device
#define threadgroup
#define constant
#define thread_position_in_threadgroup (emu::cur->tid)
#define threadgroup_position_in_grid (emu::group)
#define threadgroups_per_grid (emu::groups)
#define thread_index_in_simdgroup ((uint)(emu::cur->index & 31))
#define simdgroup_index_in_threadgroup ((uint)(emu::cur->index / 32))
typedef unsigned atomic_uint;
enum memory_order { memory_order_relaxed };
inline uint atomic_fetch_add_explicit(atomic_uint* p, uint n, memory_order) { *p += n; return *p - n; }
inline uint atomic_fetch_or_explicit(atomic_uint* p, uint n, memory_order) { const uint before = *p; *p |= n; return before; }
enum class mem_flags { mem_threadgroup, mem_device };
inline void threadgroup_barrier(mem_flags) { emu::barrier(); }
template <typename T> T simd_shuffle(T v, ushort lane) { return emu::read(v, lane); }
template <typename T> T simd_shuffle_xor(T v, ushort m) { return emu::read(v, (emu::cur->index & 31) ^ m); }
inline float simd_sum(float v) {
  auto t = emu::exchange(&v, 4);
  float s = 0;
  for (int i = 0; i < 32; ++i) { float x; memcpy(&x, t[i], 4); s += x; }
  return s;
}
template <typename T> T as_type(int x) { T f; memcpy(&f, &x, 4); return f; }
// A lane has two neighbours of a row of eight.
inline int emu_matrix_row(int lane) { return (lane >> 4) * 4 + (lane >> 1) % 4; }
inline int emu_matrix_column(int lane) { return (lane >> 3) % 2 * 4 + lane % 2 * 2; }
template <typename T, int ROWS, int COLUMNS> struct simdgroup_matrix {
  static_assert(ROWS == 8 && COLUMNS == 8, "the only size");
  T own[2];
  T (&thread_elements())[2] { return own; }
};
template <typename T> void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>& d, simdgroup_matrix<T, 8, 8>& a, simdgroup_matrix<T, 8, 8>& b, simdgroup_matrix<T, 8, 8>& c) {
  const T mine[4] = {a.own[0], a.own[1], b.own[0], b.own[1]};
  auto lanes = emu::exchange(mine, sizeof mine);
  T left[8][8], right[8][8];
  for (int lane = 0; lane < 32; ++lane) {
    T all[4];
    memcpy(all, lanes[lane], sizeof all);
    for (int i = 0; i < 2; ++i) {
      left[emu_matrix_row(lane)][emu_matrix_column(lane) + i] = all[i];
      right[emu_matrix_row(lane)][emu_matrix_column(lane) + i] = all[2 + i];
    }
  }
  const int lane = emu::cur->index & 31, row = emu_matrix_row(lane);
  for (int i = 0; i < 2; ++i) {
    T sum = c.own[i];
    for (int k = 0; k < 8; ++k) sum += left[row][k] * right[k][emu_matrix_column(lane) + i];
    d.own[i] = sum;
  }
}
namespace metal {
namespace fast {
inline float exp2(float x) { return std::exp2(x); }
inline float exp(float x) { return std::exp(x); }
}
namespace precise {
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline float cos(float x) { return std::cos(x); }
inline float log(float x) { return std::log(x); }
inline float sin(float x) { return std::sin(x); }
}
inline float rint(float x) { return std::rint(x); }
}
#endif
