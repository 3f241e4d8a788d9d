package leak

import "strings"

// The descriptors that librdmacm keeps: it opens each device that identifiers are bound to for
// itself, once, and keeps that context until the process ends (rdma-core librdmacm/cma.c,
// ucma_put_device closes only those of dead devices). A context is two descriptors, with these
// names.
const (
	contextPrefix = "/dev/infiniband/uverbs"
	contextEvents = "anon_inode:[infinibandevent]"
)

// keptByCM returns the new descriptors to ignore: one context of each device, if none was open
// before. Further ones are leaks; gauges count the objects in them.
func keptByCM(before map[int]string, now map[int]string) (kept map[int]bool) {
	opened := map[string]bool{}
	for _, what := range before {
		if strings.HasPrefix(what, contextPrefix) {
			opened[what] = true
		}
	}
	kept = map[int]bool{}
	contexts := 0
	for fd, what := range now {
		if strings.HasPrefix(what, contextPrefix) && before[fd] != what && !opened[what] {
			opened[what], kept[fd] = true, true
			contexts++
		}
	}
	for fd, what := range now {
		if contexts > 0 && what == contextEvents && before[fd] != what {
			kept[fd] = true
			contexts--
		}
	}
	return kept
}
