package serve

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/processor/health"
)

// TestDiskThatIsFullAndHasRoomAgain: the embedded NATS refuses messages before the disk is full to the last byte, and
// stores them again, without a restart, once there is room.
func TestDiskThatIsFullAndHasRoomAgain(t *testing.T) {
	opts := options(t)
	p := &process{opts: opts}
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}()
	js, err := jetstream.New(p.log.nats, jetstream.WithDefaultTimeout(harness.Limit))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	board := health.New(opts.Logger)
	data, err := newDataWatch(p.at.Data, opts.Processor.Prefix, 1, board, p.embedded.limitStore)
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 30
	few := uint64(size / leastFreeShare)
	publish := func(bytes int) error {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "s", Data: make([]byte, bytes)},
			jetstream.WithRetryAttempts(0))
		return err
	}
	for _, step := range []struct {
		name                          string
		free                          uint64
		problem, refused, refusesMuch bool
	}{
		{name: "empty", free: size},
		{name: "nearly full", free: few - 1, problem: true},
		{name: "room for a little", free: few/refusedBelow + 4096, problem: true, refusesMuch: true},
		{name: "full", free: few / refusedBelow, problem: true, refused: true, refusesMuch: true},
		{name: "full to the last byte", free: 0, problem: true, refused: true, refusesMuch: true},
		{name: "room again", free: few},
	} {
		data.disk = func(string) (uint64, uint64, error) { return size, step.free, nil }
		data.checkDisk()
		if got := len(board.Problems()) > 0; got != step.problem {
			t.Errorf("%s: a problem: %t, want %t: %v", step.name, got, step.problem, board.Problems())
		}
		if err := publish(100); (err != nil) != step.refused {
			t.Errorf("%s: a small message: %v", step.name, err)
		}
		err := publish(100_000)
		if (err != nil) != step.refusesMuch {
			t.Errorf("%s: a large message: %v", step.name, err)
		}
		var api *jetstream.APIError
		if err != nil && (!errors.As(err, &api) || api.ErrorCode != 10002) {
			t.Errorf("%s: refused with %v, want the limits of the account", step.name, err)
		}
	}
}
