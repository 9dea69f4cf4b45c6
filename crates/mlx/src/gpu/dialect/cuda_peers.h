// CUDA alone: packets and flags in the memory of other GPUs; goes behind the dialect where a kernel needs it.
// The emulator has functions of the same names.
#ifndef GK_EMU
struct alignas(16) gk_bytes16 { gk_uint v[4]; };
// Waiting for another GPU. What does not come in a minute ends the computation with an error.
struct gk_patience {
  gk_ulong since = 0;
  gk_uint tries = 0;
  GK_FN void spend() {
    if (++tries % 65536 != 0) return;
    gk_ulong now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (since == 0) since = now;
    if (now - since > 60000000000ull) asm volatile("trap;");
  }
};
// A packet: eight bytes of data, each half with a flag, in one store. A half is there when its flag is.
GK_FN void gk_push(char* to, gk_ulong data, gk_uint flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%2};"
      :: "l"(to), "r"((gk_uint)data), "r"(flag), "r"((gk_uint)(data >> 32)) : "memory");
}
GK_FN gk_bytes16 gk_arrived(const char* from) {
  gk_bytes16 x;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(x.v[0]), "=r"(x.v[1]), "=r"(x.v[2]), "=r"(x.v[3]) : "l"(from) : "memory");
  return x;
}
// Waits for a packet.
GK_FN gk_ulong gk_pull(const char* from, gk_uint flag) {
  for (gk_patience patience;; patience.spend()) {
    const gk_bytes16 x = gk_arrived(from);
    if (x.v[1] == flag && x.v[3] == flag) return (gk_ulong)x.v[2] << 32 | x.v[0];
  }
}
// A flag behind all that the group has written before its last barrier.
GK_FN void gk_post(char* to, gk_uint flag) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(to), "r"(flag) : "memory");
}
GK_FN void gk_await(const char* from, gk_uint flag) {
  for (gk_patience patience;; patience.spend()) {
    gk_uint found;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(from) : "memory");
    if (found == flag) return;
  }
}
// The memory of a rank. addresses: of all ranks
GK_FN char* gk_peer(const gk_ulong* addresses, const void*, int rank) { return reinterpret_cast<char*>(addresses[rank]); }
#endif
GK_FN gk_uint gk_fresh(const gk_uint* p) { return *reinterpret_cast<const volatile gk_uint*>(p); }
