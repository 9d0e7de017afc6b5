package demo

import (
	"net"
	"testing"
)

// TestFreeAddress: an address is used if nobody else listens there.
func TestFreeAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if got := freeAddress(at); got != "127.0.0.1:0" {
		t.Errorf("%s is taken, but freeAddress returns %s", at, got)
	}
	_ = l.Close()
	if got := freeAddress(at); got != at {
		t.Errorf("%s is free, but freeAddress returns %s", at, got)
	}
}
