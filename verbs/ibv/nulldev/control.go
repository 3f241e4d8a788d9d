//go:build linux && cgo && !portable

package nulldev

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "c/nulldev.h"

// The functions of one loaded library.
struct control {
	void (*set_mode)(uint32_t);
	void (*set_memlock)(uint64_t);
	int (*set_profile)(const char *);
	const char *(*profile_name)(uint32_t);
	int (*add_fault)(const struct nulldev_fault *);
	uint64_t (*hits)(int);
	void (*clear)(void);
	uint64_t (*calls)(const char *);
	void (*stats)(struct nulldev_stats *);
	int (*spurious)(void);
	int (*port_event)(const char *, int);
	int (*set_gid)(const char *, uint32_t, const uint8_t *, uint32_t);
	void (*reset_gids)(void);
	int (*fatal)(const char *);
	int (*revive)(const char *);
	int (*cm_removal)(const char *);
};

static void find(void *lib, const char *name, void *to, int *missing)
{
	void *f = dlsym(lib, name);

	if (!f)
		*missing = 1;
	memcpy(to, &f, sizeof(f));
}

static int find_all(void *verbs, void *cm, struct control *c)
{
	int missing = 0;

	find(verbs, "nulldev_set_mode", &c->set_mode, &missing);
	find(verbs, "nulldev_set_memlock", &c->set_memlock, &missing);
	find(verbs, "nulldev_set_profile", &c->set_profile, &missing);
	find(verbs, "nulldev_profile_name", &c->profile_name, &missing);
	find(verbs, "nulldev_add_fault", &c->add_fault, &missing);
	find(verbs, "nulldev_hits", &c->hits, &missing);
	find(verbs, "nulldev_clear_faults", &c->clear, &missing);
	find(verbs, "nulldev_calls", &c->calls, &missing);
	find(verbs, "nulldev_stats", &c->stats, &missing);
	find(verbs, "nulldev_spurious_events", &c->spurious, &missing);
	find(verbs, "nulldev_port_event", &c->port_event, &missing);
	find(verbs, "nulldev_set_gid", &c->set_gid, &missing);
	find(verbs, "nulldev_reset_gids", &c->reset_gids, &missing);
	find(verbs, "nulldev_fatal", &c->fatal, &missing);
	find(verbs, "nulldev_revive", &c->revive, &missing);
	find(cm, "nulldev_cm_removal", &c->cm_removal, &missing);
	return missing;
}

static void set_memlock(struct control *c, uint64_t n) { c->set_memlock(n); }
static void set_mode(struct control *c, uint32_t m) { c->set_mode(m); }
static int set_profile(struct control *c, const char *name) { return c->set_profile(name); }
static const char *profile_name(struct control *c, uint32_t i) { return c->profile_name(i); }
static int add_fault(struct control *c, const struct nulldev_fault *f) { return c->add_fault(f); }
static uint64_t hits(struct control *c, int f) { return c->hits(f); }
static void clear(struct control *c) { c->clear(); }
static uint64_t calls(struct control *c, const char *name) { return c->calls(name); }
static void stats(struct control *c, struct nulldev_stats *s) { c->stats(s); }
static int spurious(struct control *c) { return c->spurious(); }
static int port_event(struct control *c, const char *d, int t) { return c->port_event(d, t); }
static int set_gid(struct control *c, const char *d, uint32_t i, const uint8_t *g, uint32_t n) { return c->set_gid(d, i, g, n); }
static void reset_gids(struct control *c) { c->reset_gids(); }
static int fatal(struct control *c, const char *d) { return c->fatal(d); }
static int revive(struct control *c, const char *d) { return c->revive(d); }
static int cm_removal(struct control *c, const char *d) { return c->cm_removal(d); }
*/
import "C"

import (
	"fmt"
	"math"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// Control scripts one pair of libraries and reads their counters. Its settings hold for the
// process: all users of the same libraries see them. All methods except Close may be called from
// any goroutine.
type Control struct {
	c         C.struct_control
	verbs, cm unsafe.Pointer
}

// Open opens the libraries, and loads them if no provider has. The caller closes it.
//
// Errors: those of the dynamic linker.
func Open(p Paths) (*Control, error) {
	k := &Control{}
	for _, l := range []struct {
		path string
		to   *unsafe.Pointer
	}{{p.Verbs, &k.verbs}, {p.RDMACM, &k.cm}} {
		name := C.CString(l.path)
		*l.to = C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
		C.free(unsafe.Pointer(name))
		if *l.to == nil {
			err := fmt.Errorf("nulldev: loading %s: %s", l.path, C.GoString(C.dlerror()))
			k.Close()
			return nil, err
		}
	}
	if C.find_all(k.verbs, k.cm, &k.c) != 0 {
		k.Close()
		return nil, fmt.Errorf("nulldev: %s and %s are not the null device's", p.Verbs, p.RDMACM)
	}
	return k, nil
}

// Close removes the faults, resets the mode, the profile and the address tables and unloads the libraries.
func (k *Control) Close() {
	if k.c.clear != nil {
		C.clear(&k.c)
		C.set_mode(&k.c, C.uint32_t(Loopback))
		_ = k.SetProfile(Plain)
		k.SetMemlock(math.MaxUint64)
		C.reset_gids(&k.c)
	}
	for _, h := range []unsafe.Pointer{k.cm, k.verbs} {
		if h != nil {
			C.dlclose(h)
		}
	}
	*k = Control{}
}

// SetMode sets the mode of contexts opened from now on.
func (k *Control) SetMode(m Mode) { C.set_mode(&k.c, C.uint32_t(m)) }

// SetMemlock limits the bytes of the rings of queues. Above it, creations and ibv_resize_cq fail with ENOMEM, as
// with the kernel's RLIMIT_MEMLOCK. Default: no limit.
func (k *Control) SetMemlock(bytes uint64) { C.set_memlock(&k.c, C.uint64_t(bytes)) }

// Plain is the profile of the null device by itself.
const Plain = "plain"

// Profiles returns the names of the profiles: each imitates a driver and its devices (c/profile).
func (k *Control) Profiles() (names []string) {
	for i := C.uint32_t(0); ; i++ {
		name := C.profile_name(&k.c, i)
		if name == nil {
			return names
		}
		names = append(names, C.GoString(name))
	}
}

// SetProfile selects the profile of contexts opened from now on.
//
// Errors: ENOENT for an unknown name.
func (k *Control) SetProfile(name string) error {
	return k.named(name, func(s *C.char) C.int { return C.set_profile(&k.c, s) })
}

// Add adds a fault and returns its number.
//
// Errors: EINVAL for an invalid one, ENOSPC for one too many.
func (k *Control) Add(f Fault) (int, error) {
	c := C.struct_nulldev_fault{kind: C.uint32_t(f.Kind), how: C.uint32_t(f.How), nth: C.uint64_t(f.Nth),
		count: C.uint64_t(f.Count), err: C.int32_t(f.Err), arg: C.uint32_t(f.At)}
	if len(f.Call) >= len(c.call) {
		return 0, syscall.EINVAL
	}
	for i := range f.Call {
		c.call[i] = C.char(f.Call[i])
	}
	n := C.add_fault(&k.c, &c)
	if n < 0 {
		return 0, syscall.Errno(-n)
	}
	return int(n), nil
}

// Hits returns how often a fault was applied.
func (k *Control) Hits(fault int) uint64 { return uint64(C.hits(&k.c, C.int(fault))) }

// Clear removes all faults.
func (k *Control) Clear() { C.clear(&k.c) }

// Calls counts the calls of this name; of all names with "". Posts and polls are counted by name
// only while a fault is scripted: Stats always counts them.
func (k *Control) Calls(name string) uint64 {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return uint64(C.calls(&k.c, c))
}

// Stats reads the counters.
func (k *Control) Stats() Stats {
	var s C.struct_nulldev_stats
	C.stats(&k.c, &s)
	l := &s.live
	return Stats{
		Sends: uint64(s.sends), Recvs: uint64(s.recvs), SendWRs: uint64(s.send_wrs), RecvWRs: uint64(s.recv_wrs),
		Doorbells: uint64(s.doorbells), Polls: uint64(s.polls), EmptyPolls: uint64(s.empty_polls),
		Completions: uint64(s.completions), Events: uint64(s.events), LostEvents: uint64(s.lost_events),
		Unacked: uint64(s.unacked), Contexts: int(l.context),
		Rings: uint64(s.rings), Locked: uint64(s.locked), Advised: uint64(s.advised), TDRaces: uint64(s.td_races),
		Objects: verbs.ObjectCount{PD: int(l.pd), TD: int(l.td), MR: int(l.mr), MW: int(l.mw), AH: int(l.ah), CQ: int(l.cq), CompChannel: int(l.channel),
			QP: int(l.qp), SRQ: int(l.srq), XRCD: int(l.xrcd), CMChannel: int(l.cm_channel), CMID: int(l.cm_id)},
	}
}

// SpuriousEvents raises a completion event on all queues with a channel, although nothing
// completed, and returns the number of queues.
func (k *Control) SpuriousEvents() int { return int(C.spurious(&k.c)) }

// PortEvent raises an asynchronous event of a device's port. PORT_ERR deactivates it, PORT_ACTIVE
// activates it.
func (k *Control) PortEvent(device string, t verbs.AsyncEventType) error {
	return k.named(device, func(d *C.char) C.int { return C.port_event(&k.c, d, C.int(t)) })
}

// SetGID replaces an entry of a device's address table, by an empty one for the zero GID, and raises
// GID_CHANGE. The interface of index 1 is lo; the connection manager refuses addresses of others, as
// those of other name spaces. Close undoes it.
func (k *Control) SetGID(device string, index int, g verbs.GID, ifindex int) error {
	return k.named(device, func(d *C.char) C.int {
		return C.set_gid(&k.c, d, C.uint32_t(index), (*C.uint8_t)(&g[0]), C.uint32_t(ifindex))
	})
}

// Kill makes a device fail: DEVICE_FATAL in all its contexts.
func (k *Control) Kill(device string) error {
	return k.named(device, func(d *C.char) C.int { return C.fatal(&k.c, d) })
}

// Revive permits a dead device to be opened and used again.
func (k *Control) Revive(device string) error {
	return k.named(device, func(d *C.char) C.int { return C.revive(&k.c, d) })
}

// Remove raises DEVICE_REMOVAL for all connection identifiers bound to a device.
func (k *Control) Remove(device string) error {
	return k.named(device, func(d *C.char) C.int { return min(C.cm_removal(&k.c, d), 0) })
}

func (k *Control) named(device string, f func(*C.char) C.int) error {
	c := C.CString(device)
	defer C.free(unsafe.Pointer(c))
	if e := f(c); e < 0 {
		return syscall.Errno(-e)
	}
	return nil
}
