package natscluster

import (
	"os"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// FlipBit flips one bit in the file of a server, in the last byte of a message of a stream. The server may run. It
// flips it back if it was called before.
func FlipBit(t testing.TB, n *harness.NATS, stream string, seq uint64) {
	t.Helper()
	var block string
	var at int64
	var was byte
	for _, b := range blocks(n, stream) {
		err := records(b, func(s uint64, record []byte, begins int64) {
			if s == seq {
				last := len(record) - checksum - 1
				block, at, was = b, begins+int64(last), record[last]
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if block == "" {
		t.Fatalf("%s has no message %d of %s", n.Name(), seq, stream)
	}
	file, err := os.OpenFile(block, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte{was ^ 1}, at); err != nil {
		t.Fatal(err)
	}
}
