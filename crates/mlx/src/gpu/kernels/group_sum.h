// s of all threads of a group, added up by NS floats of red from RED on.
s = gk_sum(s);
if (GK_LANE == 0) red[RED + GK_SIMD] = s;
GK_BARRIER();
s = 0;
GK_UNROLL for (int j = 0; j < NS; ++j) s += red[RED + j];
