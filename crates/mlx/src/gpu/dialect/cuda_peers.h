// CUDA alone: packets in the memory of other GPUs; goes behind the dialect where a kernel needs it.
// The emulator has functions of the same names.
#ifndef GK_EMU
// A packet: eight bytes of data, each half with a flag, in one store. A half is there when its flag is.
GK_FN void gk_push(char* to, gk_ulong data, gk_uint flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%2};"
      :: "l"(to), "r"((gk_uint)data), "r"(flag), "r"((gk_uint)(data >> 32)) : "memory");
}
// Waits for a packet. One that does not come in a minute ends the computation with an error.
GK_FN gk_ulong gk_pull(const char* from, gk_uint flag) {
  gk_uint low, first, high, second;
  gk_ulong since = 0;
  for (gk_uint tries = 1;; ++tries) {
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(low), "=r"(first), "=r"(high), "=r"(second) : "l"(from) : "memory");
    if (first == flag && second == flag) return (gk_ulong)high << 32 | low;
    if (tries % 65536 == 0) {
      gk_ulong now;
      asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
      if (since == 0) since = now;
      if (now - since > 60000000000ull) asm volatile("trap;");
    }
  }
}
// The memory of a rank. addresses: of all ranks
GK_FN char* gk_peer(const gk_ulong* addresses, const void*, int rank) { return reinterpret_cast<char*>(addresses[rank]); }
#endif
GK_FN gk_uint gk_fresh(const gk_uint* p) { return *reinterpret_cast<const volatile gk_uint*>(p); }
