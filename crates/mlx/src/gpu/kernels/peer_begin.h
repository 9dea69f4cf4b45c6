// What begins an exchange: its number, the half of the memory that it uses, and this group's row.
// peers: x, peers, after of the kernel; Data: what is sent at once
GK_WAIT();
const gk_ulong* const addresses = reinterpret_cast<const gk_ulong*>(peers);
GK_DEV gk_uint* const own = reinterpret_cast<GK_DEV gk_uint*>(gk_peer(addresses, after, RANK));
gk_uint number = gk_fresh(own) + 1;
// Flags of memory that was never written are zero, and the next exchange is in the other half.
if (number == 0) number = 2;
const gk_long half = (gk_long)(number & 1) * RANKS;
const int pieces = W * (int)sizeof(T) / (int)sizeof(Data);
const gk_long first = (gk_long)GK_GROUP_Y * pieces;
const Data* const from = reinterpret_cast<const Data*>(x) + first;
