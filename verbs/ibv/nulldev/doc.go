// Package nulldev builds and controls the null device: a small C library with the entry points of
// libibverbs and librdmacm, including symbol versions, that needs no hardware and no kernel
// module. [Build] makes the two libraries, with the C compiler of the machine; a provider loads
// them by path as it loads the system's; [Open] opens them beside the provider, to script faults
// and to read counters.
//
// There are two devices, null0 and null1, each with one active RoCE v2 port at GID index 0:
// 127.0.0.1 and 127.0.0.2. All connections are within the process.
//
// # Modes
//
// In mode [Loopback] the devices work: sends meet posted receives, one-sided operations copy,
// keys and ranges and permissions are checked, errors flush in order. In mode [Instant] they are
// a baseline for measurements: a request writes 64 bytes into a ring, a post one fenced doorbell,
// a signaled request gets a completion of 64 bytes, and no data moves; receives complete only
// when flushed. A context keeps the mode that was set when it was opened;
// VERBENA_NULLDEV_MODE=instant in the environment sets the initial mode.
//
// # Profiles
//
// A profile makes the devices differ as those of one driver do: in their limits, in what they refuse
// and how, in their addresses, in the time of their calls. Each is a file of c/profile, named after the
// driver. [Control.SetProfile] selects the profile of contexts opened from then on;
// VERBENA_NULLDEV_PROFILE in the environment selects the initial one. By default the devices are as
// described here ([Plain]).
//
// # Differences between loopback and a network
//
//   - Work is done within the posting call: a send that can be executed has
//     completed when the post returns. A request that needs a receive waits for
//     rnr_retry times the responder's timer (7: no limit), and one whose peer is
//     not ready for (retry_cnt+1) times the timeout (0: no limit). It tries again
//     only when something changes.
//   - Nothing is lost, so sequence numbers are wrong only if they differ from the
//     start; a message is one packet.
//   - A DREQ is answered at once, whether the peer's program disconnects or not,
//     and TIMEWAIT_EXIT follows DISCONNECTED immediately.
//   - Destroying calls succeed on a dead device, as they do in rdma-core for an
//     unplugged device; all other calls return EIO.
//   - Not implemented: identifiers without an event channel (synchronous ones;
//     rdma_create_ep makes passive ones, to be moved to a channel), default
//     protection domains and completion queues of rdma_create_qp,
//     rdma_getaddrinfo, TSO and tag matching.
//   - Addresses of InfiniBand (AF_IB) are there, which Linux has on ports of
//     InfiniBand alone (profile mlx5_ib).
//   - On-demand memory is ordinary memory; its faults cost nothing. Any mappable
//     descriptor stands for the memory of another device.
//   - Posts of one thread domain that overlap are counted ([Stats].TDRaces), in
//     mode [Loopback]; in the profiles mlx5 they end the process.
package nulldev
