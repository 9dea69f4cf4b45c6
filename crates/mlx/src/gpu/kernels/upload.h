// A copy in the device's own memory. MLX puts arrays made from host data into managed memory, where each kernel that
// reads them pays for it, and its own elementwise operations may reuse that memory for their result.
// in: x [n] int, n a multiple of 256; out: y [n]. groups (n / 256), 256 threads
const int i = GK_GROUP_X * 256 + GK_TID;
y[i] = x[i];
