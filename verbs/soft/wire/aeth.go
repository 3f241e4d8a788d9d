package wire

import "fmt"

// Syndrome is the first byte of an AETH: the kind of acknowledgement (bits 7 to 5) and its value
// (bits 4 to 0).
//
//	kind      value
//	ACK       credit code; [CreditInvalid]: no limit
//	RNR NAK   RNR timer code
//	NAK       [NakCode]
//
// Implements: IBTA volume 1, 9.7.5.1 (AETH).
type Syndrome uint8

// AckKind is the kind of an acknowledgement.
type AckKind uint8

// Values of AckKind. Kind 2 and kinds above 3 are reserved.
const (
	KindAck    AckKind = 0
	KindRNRNak AckKind = 1
	KindNak    AckKind = 3
)

// NakCode is the reason for refusing a request.
type NakCode uint8

// Values of NakCode. Codes 5 to 31 are reserved.
const (
	NakSequence   NakCode = 0 // PSN sequence error: resend from this PSN on
	NakInvalid    NakCode = 1 // invalid request
	NakAccess     NakCode = 2 // remote access error
	NakOperation  NakCode = 3 // remote operational error
	NakInvalidRD  NakCode = 4 // invalid reliable datagram request
	nakCodes              = 5
	syndromeBits          = 5
	syndromeValue         = 1<<syndromeBits - 1
)

// CreditInvalid is the credit code of a responder that does not count credits (one with a shared
// receive queue): it does not limit the requester.
const CreditInvalid = 31

// Ack returns the syndrome of an acknowledgement with a credit code.
func Ack(creditCode uint8) Syndrome { return Syndrome(creditCode & syndromeValue) }

// RNRNak returns the syndrome of a receiver-not-ready NAK with a timer code.
func RNRNak(timer uint8) Syndrome {
	return Syndrome(uint8(KindRNRNak)<<syndromeBits | timer&syndromeValue)
}

// Nak returns the syndrome of a refusal.
func Nak(c NakCode) Syndrome {
	return Syndrome(uint8(KindNak)<<syndromeBits | uint8(c)&syndromeValue)
}

// Kind returns the kind of acknowledgement.
func (s Syndrome) Kind() AckKind { return AckKind(s >> syndromeBits) }

// Value returns the credit code, the timer code or the NAK code, by kind.
func (s Syndrome) Value() uint8 { return uint8(s) & syndromeValue }

// Nak returns the reason of a refusal; valid when Kind is KindNak.
func (s Syndrome) Nak() NakCode { return NakCode(s.Value()) }

// Valid reports whether the specification defines kind and value.
func (s Syndrome) Valid() bool {
	switch s.Kind() {
	case KindAck, KindRNRNak:
		return true
	case KindNak:
		return s.Value() < nakCodes
	default:
		return false
	}
}

// String names kind and value.
func (s Syndrome) String() string {
	switch s.Kind() {
	case KindAck:
		return fmt.Sprintf("ACK(credits %d)", s.Value())
	case KindRNRNak:
		return fmt.Sprintf("RNR_NAK(timer %d)", s.Value())
	case KindNak:
		return fmt.Sprintf("NAK(%v)", s.Nak())
	default:
		return fmt.Sprintf("syndrome 0x%02x", uint8(s))
	}
}

// String names the code.
func (c NakCode) String() string {
	switch c {
	case NakSequence:
		return "PSN_SEQUENCE_ERROR"
	case NakInvalid:
		return "INVALID_REQUEST"
	case NakAccess:
		return "REMOTE_ACCESS_ERROR"
	case NakOperation:
		return "REMOTE_OPERATIONAL_ERROR"
	case NakInvalidRD:
		return "INVALID_RD_REQUEST"
	default:
		return fmt.Sprintf("NAK code %d", uint8(c))
	}
}
