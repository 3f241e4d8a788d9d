package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// masker removes secrets from texts. It remembers addresses, so that a reader recognizes equal
// ones: "IPv4 private #1".
type masker struct {
	words []word
	seen  map[netip.Addr]int
}

type word struct {
	find *regexp.Regexp
	put  string
}

// The shortest names that are masked: shorter ones occur in other words of a report.
const shortestName = 4

// newMasker makes a masker for this machine and user.
func newMasker() *masker {
	host, _ := os.Hostname()
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	home, _ := os.UserHomeDir()
	here, _ := os.Getwd()
	return maskerOf(host, name, home, here)
}

func maskerOf(host, name, home, here string) *masker {
	m := &masker{seen: map[netip.Addr]int{}}
	add := func(text, put string) {
		if len(text) >= shortestName && text != "localhost" && text != "root" {
			m.words = append(m.words, word{regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(text) + `\b`), put})
		}
	}
	// Longer ones first.
	if len(here) > 1 {
		m.words = append(m.words, word{regexp.MustCompile(regexp.QuoteMeta(here) + `\b`), "."})
	}
	if len(home) > 1 {
		m.words = append(m.words, word{regexp.MustCompile(regexp.QuoteMeta(filepath.Clean(home)) + `\b`), "~"})
	}
	m.words = append(m.words, word{homes, "/home/USER"})
	add(host, "HOST")
	short, _, _ := strings.Cut(host, ".")
	add(short, "HOST")
	add(name, "USER")
	return m
}

var (
	homes = regexp.MustCompile(`/home/[^/\s:"']+`)
	// tokens are runs of the characters of addresses, letters and dots around them included.
	tokens = regexp.MustCompile(`[\w:.%]+`)
	// hardware are MAC addresses, of 6 bytes or of 20 on InfiniBand, and GUIDs.
	hardware = regexp.MustCompile(`(?i)\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,19}\b|\b[0-9a-f]{4}(?::[0-9a-f]{4}){3}\b`)
	// joined are those without separators, as in names that udev made of them: enx525400c0ffee,
	// rocex525400fffec0ffee. Behind 0x it is a number.
	joined = regexp.MustCompile(`(?i)(0x|\b|x)[0-9a-f]{12}(?:[0-9a-f]{4})?\b`)
)

// text returns s without secrets.
func (m *masker) text(s string) string {
	for _, w := range m.words {
		s = w.find.ReplaceAllLiteralString(s, w.put)
	}
	s = tokens.ReplaceAllStringFunc(s, m.addresses)
	s = hardware.ReplaceAllLiteralString(s, "HARDWARE-ADDRESS")
	return joined.ReplaceAllStringFunc(s, func(found string) string {
		switch {
		case strings.HasPrefix(strings.ToLower(found), "0x"):
			return found
		case strings.HasPrefix(strings.ToLower(found), "x"):
			return "xHARDWARE-ADDRESS"
		}
		return "HARDWARE-ADDRESS"
	})
}

// addresses masks the IP address in a token, which may have a name before it ("addr:10.0.0.1") and a port
// or punctuation behind it. A name of a file or a version has letters and a dot before: it is none.
func (m *masker) addresses(token string) string {
	if at := hardware.FindStringIndex(token); at != nil && at[0] == 0 && at[1] == len(token) || !strings.ContainsAny(token, ".:") {
		return token
	}
	starts, ends := []int{0}, []int{len(token)}
	for i, c := range token {
		if c == ':' {
			starts, ends = append(starts, i+1), append(ends, i)
		}
	}
	if last := len(strings.TrimRight(token, ".:")); last < len(token) {
		ends = append(ends, last)
	}
	for _, from := range starts {
		for _, to := range ends {
			if from >= to {
				continue
			}
			if a, err := netip.ParseAddr(token[from:to]); err == nil {
				return token[:from] + m.addr(a.WithZone("")) + token[to:]
			}
		}
	}
	return token
}

// addr returns the kind of an address and its number. Loopback and unspecified addresses are everybody's.
func (m *masker) addr(a netip.Addr) string {
	if a.Is4In6() {
		a = a.Unmap()
	}
	if a.IsUnspecified() || a.IsLoopback() {
		return a.String()
	}
	if m.seen[a] == 0 {
		m.seen[a] = len(m.seen) + 1
	}
	family := "IPv6"
	if a.Is4() {
		family = "IPv4"
	}
	return fmt.Sprintf("%s %s #%d", family, kindOf(a), m.seen[a])
}

// shared are addresses behind a carrier's NAT (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

func kindOf(a netip.Addr) string {
	switch {
	case a.IsMulticast():
		return "multicast"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsPrivate():
		return "private"
	case shared.Contains(a):
		return "shared"
	}
	return "global"
}

// longest is the length of a text of a report in bytes; the rest is cut off. A thousand connections may fail with
// a text each.
const longest = 1000

// brief cuts a text off.
func brief(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + fmt.Sprintf(" ... and %d bytes more", len(s)-longest)
}

// report masks all texts of a report but those with the tag mask:"-", which are versions, and cuts off long ones.
func (m *masker) report(r *Report) {
	each(reflect.ValueOf(r), "", func(v reflect.Value, tag string) {
		if v.Kind() == reflect.String && tag != "-" {
			v.SetString(brief(m.text(v.String())))
		}
	})
}
