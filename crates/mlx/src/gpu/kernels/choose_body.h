float top = -3.4e38f;
int at = V;
for (int i = tid; i < V; i += NT) {
  const float x = GK_LOGIT(i);
  if (x > top) { top = x; at = i; }
}
GK_UNROLL for (int i = 16; i > 0; i >>= 1) {
  const float x = gk_shfl_xor(top, i);
  const int other = gk_shfl_xor(at, i);
  if (x > top || (x == top && other < at)) { top = x; at = other; }
}
if (lane == 0) { tops[simd] = top; ats[simd] = at; }
GK_BARRIER();
for (int j = 0; j < NS; ++j)
  if (tops[j] > top || (tops[j] == top && ats[j] < at)) { top = tops[j]; at = ats[j]; }
if (temperature < 1e-30f || k == 1 || at == V || top > 3.4e38f) {
  // Logits that are no numbers choose a token that there is.
  if (tid == 0) tokens[row] = at < V ? at : 0;
} else {
  const float inverse = 1.0f / temperature;
  const gk_uint least = min_p >= 1.0f ? ONE : min_p > 0 ? (gk_uint)(min_p * ONE) : 0u;
  gk_uint cut_q = least;
  int cut_id = V;
  gk_ulong kept = 0;                                          // weight of what top_k keeps; 0 if it keeps all
  for (int filter = 0; filter < 2; ++filter) {
    const bool by_count = filter == 0;
    if (by_count ? k < 1 || k >= V : top_p >= 1.0f) continue;
    // The largest weight lo such that those of lo and more have what is wanted, and those of hi and more have not.
    gk_uint lo = least, hi = ONE + 1, count_above = 0, count_from = 0;
    gk_ulong wanted = by_count ? (gk_ulong)k : 0, sum_above = 0;
    bool first = true, list = false, all = false;
    int n = V;
    while (first || hi - lo > 1) {
      gk_uint p[NP], c[NP];
      gk_ulong s[NP];
      GK_UNROLL for (int j = 0; j < NP; ++j) {
        const int shift = j == 1 ? 20 : j == 2 ? 14 : j == 3 ? 10 : j == 4 ? 7 : j == 5 ? 4 : j == 6 ? 2 : 1;
        const gk_uint power = ONE >> shift;
        p[j] = first ? (j == 0 || power < lo ? lo : power) : lo + (gk_uint)(((gk_ulong)(hi - lo) * j) / NP);
        c[j] = 0;
        s[j] = 0;
      }
      for (int i = tid; i < n; i += NT) {
        const gk_uint q = list ? list_q[i] : gk_weight(GK_LOGIT(i), top, inverse);
        GK_UNROLL for (int j = 0; j < NP; ++j) {
          const bool counts_here = q >= p[j] && q < hi;
          c[j] += counts_here ? 1 : 0;
          s[j] += counts_here ? q : 0;
        }
      }
      GK_UNROLL for (int j = 0; j < NP; ++j) {
        c[j] = (gk_uint)gk_sum_long(c[j]);
        s[j] = gk_sum_long(s[j]);
        if (lane == 0) { counts[simd * NP + j] = c[j]; sums[simd * NP + j] = s[j]; }
      }
      GK_BARRIER();
      if (tid < NP) {
        gk_uint count = count_above;
        gk_ulong sum = sum_above;
        for (int j = 0; j < NS; ++j) { count += counts[j * NP + tid]; sum += sums[j * NP + tid]; }
        counts[NS * NP + tid] = count;
        sums[NS * NP + tid] = sum;
      }
      GK_BARRIER();
      if (first && !by_count) {
        wanted = gk_part(kept > 0 ? kept : sums[NS * NP], top_p);
        wanted = wanted > 0 ? wanted : 1;
      }
      int best = -1;
      GK_UNROLL for (int j = 0; j < NP; ++j)
        if ((by_count ? (gk_ulong)counts[NS * NP + j] : sums[NS * NP + j]) >= wanted) best = j;
      first = false;
      if (best < 0) { all = true; break; }                    // everything is kept
      GK_UNROLL for (int j = 0; j < NP; ++j) {
        if (j == best) { lo = p[j]; count_from = counts[NS * NP + j]; }
        if (j == best + 1) { hi = p[j]; count_above = counts[NS * NP + j]; sum_above = sums[NS * NP + j]; }
      }
      GK_BARRIER();                                           // the totals are read
      if (!list && hi - lo > 1 && count_from - count_above <= CAP) {
        if (tid == 0) listed[0] = 0;
        GK_BARRIER();
        for (int i = tid; i < V; i += NT) {
          const gk_uint q = gk_weight(GK_LOGIT(i), top, inverse);
          if (q >= lo && q < hi) {
            const gk_uint to = gk_shared_add(listed, 1u);
            list_q[to] = q;
            list_id[to] = i;
          }
        }
        GK_BARRIER();
        list = true;
        n = (int)(count_from - count_above);
      }
    }
    GK_BARRIER();                                             // the totals are read
    if (all) continue;
    const gk_uint equal = count_from - count_above;
    gk_ulong some = by_count ? wanted - count_above : lo > 0 ? (wanted - sum_above + lo - 1) / lo : equal;
    some = some < equal ? some : equal;
    if (by_count) kept = sum_above + some * lo;
    int id = V;
    if (some < equal) {                                       // the id of the last of the equal ones that are kept
      int from = 0, to = V - 1;
      while (from < to) {
        const int middle = (from + to) / 2;
        gk_uint c = 0;
        for (int i = tid; i < n; i += NT) {
          const gk_uint q = list ? list_q[i] : gk_weight(GK_LOGIT(i), top, inverse);
          const int of = list ? (int)list_id[i] : i;
          c += q == lo && of <= middle ? 1 : 0;
        }
        c = (gk_uint)gk_sum_long(c);
        if (lane == 0) counts[simd] = c;
        GK_BARRIER();
        c = 0;
        for (int j = 0; j < NS; ++j) c += counts[j];
        GK_BARRIER();
        if (c >= some) to = middle; else from = middle + 1;
      }
      id = from;
    }
    if (lo > cut_q || (lo == cut_q && id < cut_id)) { cut_q = lo; cut_id = id; }
  }
  // Each simd group adds up a part; then the part that holds the share is cut into smaller ones.
  int from = 0, end = V, part = ((V + NS - 1) / NS + 31) / 32 * 32;
  gk_ulong target = 0;
  for (bool whole = true;; whole = false) {
    gk_ulong sum = 0;
    const int mine = from + simd * part, stop = mine + part < end ? mine + part : end;
    for (int i = mine + lane; i < stop; i += 32) {
      const gk_uint q = gk_weight(GK_LOGIT(i), top, inverse);
      sum += q > cut_q || (q == cut_q && i <= cut_id) ? q : 0;
    }
    sum = gk_sum_long(sum);
    if (lane == 0) sums[simd] = sum;
    GK_BARRIER();
    if (whole) {
      gk_ulong total = 0;
      for (int j = 0; j < NS; ++j) total += sums[j];
      target = gk_part(total, share);
    }
    int j = 0;
    while (j < NS - 1 && target >= sums[j]) { target -= sums[j]; ++j; }
    GK_BARRIER();
    from += j * part;
    end = from + part < end ? from + part : end;
    if (part == 32) break;
    part = ((part + NS - 1) / NS + 31) / 32 * 32;
  }
  if (simd == 0) {
    const int i = from + lane;
    const gk_uint q = i < end ? gk_weight(GK_LOGIT(i), top, inverse) : 0;
    gk_ulong passed = q > cut_q || (q == cut_q && i <= cut_id) ? q : 0;
    const gk_ulong own = passed;
    GK_UNROLL for (int step = 1; step < 32; step <<= 1) {
      const gk_ulong before = gk_shfl_long(passed, lane >= step ? lane - step : lane);
      passed += lane >= step ? before : 0;
    }
    int chosen = own > 0 && passed > target && passed - own <= target ? i : V;
    GK_UNROLL for (int step = 16; step > 0; step >>= 1) {
      const int other = gk_shfl_xor(chosen, step);
      chosen = other < chosen ? other : chosen;
    }
    // Whatever the numbers were, the token is one that there is.
    if (lane == 0) tokens[row] = chosen < V ? chosen : at;
  }
}
