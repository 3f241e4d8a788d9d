package verbstest

import (
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Info is the connection record of one end of a queue pair for the other.
type Info struct {
	QPN uint32
	PSN uint32 // first packet that the owner sends
	GID verbs.GID
	LID uint16
}

// infoSize is the length of an encoded Info: QPN, PSN, GID, LID, big-endian.
const infoSize = 4 + 4 + 16 + 2

// Exchanger carries the connection records: given A's and B's, it returns the record for A and
// the record for B. Ends in other processes implement it over a side channel with [Info.Append]
// and [ParseInfo]. It may block.
type Exchanger interface {
	Exchange(ofA, ofB Info) (forA, forB Info, err error)
}

// direct is the exchange within one process.
type direct struct{}

func (direct) Exchange(ofA, ofB Info) (forA, forB Info, err error) { return ofB, ofA, nil }

// Append appends the encoded record.
func (i Info) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, i.QPN)
	b = binary.BigEndian.AppendUint32(b, i.PSN)
	return binary.BigEndian.AppendUint16(append(b, i.GID[:]...), i.LID)
}

// ParseInfo decodes a record; it refuses a wrong length or numbers of more than 24 bits.
func ParseInfo(b []byte) (Info, error) {
	if len(b) != infoSize {
		return Info{}, fmt.Errorf("verbstest: connection record of %d bytes, want %d", len(b), infoSize)
	}
	i := Info{QPN: binary.BigEndian.Uint32(b), PSN: binary.BigEndian.Uint32(b[4:])}
	i.LID = binary.BigEndian.Uint16(b[8+copy(i.GID[:], b[8:]):])
	if i.QPN > maxPSN || i.PSN > maxPSN {
		return Info{}, fmt.Errorf("verbstest: connection record with QPN %#x, PSN %#x: more than 24 bits", i.QPN, i.PSN)
	}
	return i, nil
}

// maxPSN is the largest packet sequence number and queue pair number.
const maxPSN = 1<<24 - 1
