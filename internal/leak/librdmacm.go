package leak

import "strings"

// What librdmacm leaves: it opens each device that identifiers are bound to for
// itself, once, and keeps that context to the end of the process (rdma-core
// librdmacm/cma.c, ucma_put_device closes those of dead devices only). A context
// is two descriptors, by these names.
const (
	contextPrefix = "/dev/infiniband/uverbs"
	contextEvents = "anon_inode:[infinibandevent]"
)

// keptByCM tells which descriptors to pass over, from all that are open and were
// not before: one context of each device, if none was open before. Whatever is
// beyond that was left behind; the objects in it are counted by gauges.
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
