package natscluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
)

// replica is what one server has stored of a stream: each message as it is in its file but for the checksum, by
// sequence.
type replica map[uint64][]byte

// state is what a server says of its own replica of a stream.
type state struct {
	Msgs  int    `json:"messages"`
	First uint64 `json:"first_seq"`

	perSubject int // how many messages of a subject it keeps; 0 for all
}

// compareLimit is how long servers may take to have the same: a replica that lacks much first has to catch up.
const compareLimit = time.Minute

// CompareReplicas compares the files of every server with those of every other: each replica of each stream has the
// same messages, with the same bytes. The streams may go on, but not under a load.
func (c *Cluster) CompareReplicas() {
	c.t.Helper()
	var equal []string
	harness.Until(c.t, compareLimit, "all replicas have the same", func(ctx context.Context) error {
		states, err := c.states(ctx)
		if err != nil {
			return err
		}
		for _, n := range c.Servers {
			n.Stop()
		}
		all, err := c.replicas(states)
		for _, n := range c.Servers {
			n.Continue()
		}
		if err != nil {
			return err
		}
		var different []error
		for stream, replicas := range all {
			if slices.Contains(equal, stream) {
				continue
			}
			if err := compare(replicas); err != nil {
				different = append(different, fmt.Errorf("%s: %w", stream, err))
			} else {
				equal = append(equal, stream)
			}
		}
		return errors.Join(different...)
	})
	c.t.Logf("the replicas of %d streams are the same", len(equal))
}

// states are what each server says of its replicas, by stream.
func (c *Cluster) states(ctx context.Context) (all []map[string]state, err error) {
	for _, at := range c.monitor {
		var answer struct {
			Accounts []struct {
				Streams []struct {
					Name  string `json:"name"`
					State state  `json:"state"`

					Config struct {
						PerSubject int `json:"max_msgs_per_subject"`
					} `json:"config"`
				} `json:"stream_detail"`
			} `json:"account_details"`
		}
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		url := "http://" + at + "/jsz?accounts=true&streams=true&config=true"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil {
			return nil, err
		}
		streams := map[string]state{}
		for _, account := range answer.Accounts {
			for _, s := range account.Streams {
				s.State.perSubject = s.Config.PerSubject
				streams[s.Name] = s.State
			}
		}
		all = append(all, streams)
	}
	return all, nil
}

// replicas reads the files of all servers, which stand still. The result is by stream, and then by server.
func (c *Cluster) replicas(states []map[string]state) (map[string]map[string]replica, error) {
	all := map[string]map[string]replica{}
	for i, n := range c.Servers {
		for stream, state := range states[i] {
			stored, err := read(blocks(n, stream), state.First)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", stream, n.Name(), err)
			}
			stored.keep(state.perSubject)
			if len(stored) != state.Msgs {
				return nil, fmt.Errorf("%s has %d messages of %s in its files, and says that it has %d", n.Name(), len(stored),
					stream, state.Msgs)
			}
			if all[stream] == nil {
				all[stream] = map[string]replica{}
			}
			all[stream][n.Name()] = stored
		}
	}
	return all, nil
}

// keep removes all but the last messages of each subject: nothing in a file tells that these are gone. Zero keeps all.
func (r replica) keep(perSubject int) {
	if perSubject <= 0 {
		return
	}
	have := map[string]int{}
	for _, seq := range slices.Backward(slices.Sorted(maps.Keys(r))) {
		record := r[seq]
		subject := string(record[recordHeader : recordHeader+int(binary.LittleEndian.Uint16(record[recordHeader-2:]))])
		if have[subject]++; have[subject] > perSubject {
			delete(r, seq)
		}
	}
}

// compare returns the first difference of replicas.
func compare(replicas map[string]replica) error {
	var one string
	for name, stored := range replicas {
		if one == "" || len(stored) > len(replicas[one]) {
			one = name
		}
	}
	for name, stored := range replicas {
		for seq, m := range replicas[one] {
			if !bytes.Equal(m, stored[seq]) {
				return fmt.Errorf("message %d is %q on %s, and %q on %s", seq, m, one, stored[seq], name)
			}
		}
	}
	return nil
}

// blocks are the files with the messages of a stream, in order.
func blocks(n *harness.NATS, stream string) []string {
	all, _ := filepath.Glob(filepath.Join(n.Dir(), "store", "jetstream", "*", "streams", stream, "msgs", "*.blk"))
	number := func(path string) int {
		n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".blk"))
		return n
	}
	slices.SortFunc(all, func(a, b string) int { return number(a) - number(b) })
	return all
}

// The form of a message in a block: its length, sequence, stamp and the length of its subject, the subject, the header
// with its length if it has one, the body, and a checksum.
const (
	recordHeader = 22
	checksum     = 8
	hasHeader    = 1 << 31 // in the length
	erased       = 1 << 63 // in the sequence: the message is no more
	tombstone    = 1 << 62 // in the sequence: the message of that sequence is no more
)

// records calls do with each record of a block, and where it begins.
func records(block string, do func(seq uint64, record []byte, at int64)) error {
	b, err := os.ReadFile(block)
	if err != nil {
		return err
	}
	for at := 0; at < len(b); {
		if len(b)-at < recordHeader {
			return fmt.Errorf("%s ends within a record at %d", block, at)
		}
		length := int(binary.LittleEndian.Uint32(b[at:]) &^ hasHeader)
		if length < recordHeader+checksum || length > len(b)-at {
			return fmt.Errorf("%s has a record of %d bytes at %d", block, length, at)
		}
		do(binary.LittleEndian.Uint64(b[at+4:]), b[at:at+length], int64(at))
		at += length
	}
	return nil
}

// read reads what blocks have of a stream from its first sequence on.
func read(blocks []string, first uint64) (replica, error) {
	stored, gone := replica{}, []uint64{}
	for _, block := range blocks {
		err := records(block, func(seq uint64, record []byte, _ int64) {
			switch {
			case seq&erased != 0:
			case seq&tombstone != 0:
				gone = append(gone, seq&^tombstone)
			case seq >= max(first, 1):
				stored[seq] = record[:len(record)-checksum] // it depends on the number of the block
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for _, seq := range gone {
		delete(stored, seq)
	}
	return stored, nil
}
