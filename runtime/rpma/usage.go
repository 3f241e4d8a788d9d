package rpma

import (
	"strings"

	"github.com/verbena-rdma/verbena/verbs"
)

// Usage is the set of uses of a memory region. Its bits are those of librpma's descriptors.
type Usage uint8

// The uses of a memory region.
const (
	ReadSrc         Usage = 1 << iota // peers read it
	ReadDst                           // Read fills it
	WriteSrc                          // Write takes its data from it
	WriteDst                          // peers write it
	FlushVisibility                   // peers flush WRITEs to it until they are visible
	FlushPersistent                   // peers flush WRITEs to it until they are persistent
	SendBuf                           // Send takes messages from it (RPMA_MR_USAGE_SEND)
	RecvBuf                           // Recv puts messages into it (RPMA_MR_USAGE_RECV)

	flushes = FlushVisibility | FlushPersistent
)

var usageNames = [...]string{"READ_SRC", "READ_DST", "WRITE_SRC", "WRITE_DST", "FLUSH_TYPE_VISIBILITY", "FLUSH_TYPE_PERSISTENT", "SEND", "RECV"}

// String lists the names of <librpma.h> without RPMA_MR_USAGE_.
func (u Usage) String() string {
	var names []string
	for i, name := range usageNames {
		if u&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// access returns the access with which memory for u is registered. On iWARP a READ arrives as a WRITE of
// the peer, so that its destination needs remote write access. The runtime registers memory that is
// flushed for READs if the device does not execute FLUSH.
func (u Usage) access(iWARP bool) (a verbs.AccessFlags) {
	if u&ReadSrc != 0 {
		a |= verbs.AccessRemoteRead
	}
	if u&FlushVisibility != 0 {
		a |= verbs.AccessFlushGlobal
	}
	if u&FlushPersistent != 0 {
		a |= verbs.AccessFlushPersistent
	}
	if u&(ReadDst|WriteSrc|WriteDst|RecvBuf) != 0 {
		a |= verbs.AccessLocalWrite
	}
	if u&WriteDst != 0 || iWARP && u&ReadDst != 0 {
		a |= verbs.AccessRemoteWrite
	}
	return a
}

// remote returns the access to a peer's memory that was registered for u. Memory that is flushed may have
// been registered for READs, which the peer's device knows.
func (u Usage) remote() (a verbs.AccessFlags) {
	a = (u &^ ReadDst).access(false) &^ verbs.AccessLocalWrite
	if u&flushes != 0 {
		a |= verbs.AccessRemoteRead
	}
	return a
}
