package verbs

import (
	"strconv"
	"strings"
)

// enumName names value v of an enumeration. A value missing from the table is written as kind(v),
// so that values of newer devices stay readable.
func enumName(table map[uint32]string, kind string, v uint32) string {
	if s, ok := table[v]; ok {
		return s
	}
	return kind + "(" + strconv.FormatUint(uint64(v), 10) + ")"
}

// flagNames joins the names of the bits set in v; names[i] is bit 1<<i.
// Unnamed bits are written in hexadecimal.
func flagNames(names []string, v uint32) string {
	if v == 0 {
		return "0"
	}
	var b strings.Builder
	for i, n := range names {
		if bit := uint32(1) << i; n != "" && v&bit != 0 {
			if b.Len() > 0 {
				b.WriteByte('|')
			}
			b.WriteString(n)
			v &^= bit
		}
	}
	if v != 0 {
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		b.WriteString("0x" + strconv.FormatUint(uint64(v), 16))
	}
	return b.String()
}
