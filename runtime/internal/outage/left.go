package outage

import (
	"errors"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/internal/leak"
)

// kept is what librdmacm keeps open until the end of the process: its own context of the one device
// that identifiers were bound to, a command file and an event file (ucma_init_device in
// librdmacm/cma.c). After a removal they are open on the null device, see verbs/ibv.
var kept = []string{"/dev/infiniband/uverbs", "anon_inode:[infinibandevent]"}

// Left describes the leaks in err, the error of [leak.Snapshot.Check], without what librdmacm keeps
// of one device; "" if there are none. removed reports that the device was removed. It does not
// block.
func Left(err error, removed bool) string {
	if err == nil {
		return ""
	}
	var l *leak.Error
	if !errors.As(err, &l) {
		return err.Error()
	}
	names := slices.Clone(kept)
	if removed {
		names = []string{"/dev/null", "/dev/null"}
	}
	var rest []string
	for _, d := range l.Descriptors {
		_, name, _ := strings.Cut(d, ": ")
		i := slices.IndexFunc(names, func(k string) bool { return strings.HasPrefix(name, k) })
		if i < 0 || strings.Contains(name, "(deleted)") { // no descriptor of a removed device may stay open
			rest = append(rest, d)
			continue
		}
		names = slices.Delete(names, i, i+1)
	}
	left := *l
	left.Descriptors = rest
	if len(left.Goroutines)+len(left.Descriptors)+len(left.Gauges) == 0 && left.Arenas == 0 && left.Bytes == 0 {
		return ""
	}
	return left.Error()
}
