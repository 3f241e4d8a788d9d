package main

import (
	"bytes"
	"context"
	"encoding/binary"
)

// send sends a message and does not wait for its arrival. If it fails, the connection fails too.
func (e *end) send(ctx context.Context, data []byte) error {
	sent, err := e.conn.SendBytes(ctx, data)
	sent.Discard()
	return err
}

// recv receives a message.
func (e *end) recv(ctx context.Context) ([]byte, error) {
	msg, err := e.conn.RecvWait(ctx)
	if err != nil {
		return nil, err
	}
	data := bytes.Clone(msg.Data) // it is not ours after Release
	return data, msg.Release()
}

// sendDescriptor lets the other end use the file.
func (e *end) sendDescriptor(ctx context.Context) error {
	remote, err := e.file.Remote(0, e.file.Len())
	if err != nil {
		return err
	}
	descriptor, err := remote.MarshalBinary()
	if err != nil {
		return err
	}
	return e.send(ctx, descriptor)
}

func (e *end) recvDescriptor(ctx context.Context) error {
	descriptor, err := e.recv(ctx)
	if err != nil {
		return err
	}
	return e.peer.UnmarshalBinary(descriptor) // it comes from the peer and is untrusted
}

func (e *end) sendReport(ctx context.Context, r report) error {
	data, err := binary.Append(nil, binary.LittleEndian, r)
	if err != nil {
		return err
	}
	return e.send(ctx, data)
}

func (e *end) recvReport(ctx context.Context) (r report, err error) {
	data, err := e.recv(ctx)
	if err != nil {
		return r, err
	}
	_, err = binary.Decode(data, binary.LittleEndian, &r)
	return r, err
}
