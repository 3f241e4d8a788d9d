package outage

import (
	"errors"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/internal/leak"
)

// kept lists the descriptors that librdmacm keeps open until the end of the process: the command
// file and the event file of its own context of the device to which identifiers were bound
// (ucma_init_device in librdmacm/cma.c). After a removal these descriptors refer to /dev/null (see
// verbs/ibv).
var kept = []string{"/dev/infiniband/uverbs", "anon_inode:[infinibandevent]"}

// Left returns a description of the leaks in err, the error of [leak.Snapshot.Check]. It ignores
// the descriptors that librdmacm keeps of one device. Without leaks it returns "". The argument
// removed states whether the device was removed. Left does not block.
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
