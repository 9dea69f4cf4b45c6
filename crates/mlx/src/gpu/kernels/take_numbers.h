// y[i] = x[at[i]], numbers of four bytes. at [n] int, within x. groups (n / NT rounded up), NT threads
const int i = GK_GROUP_X * NT + GK_TID;
if (i < at_shape[0]) y[i] = x[at[i]];
