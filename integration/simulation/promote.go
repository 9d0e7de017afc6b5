package simulation

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/simulation/observer"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/processor"
)

// The ways of a promotion.
const (
	handsOver = "handover" // the first region hands over: nothing is lost
	isLost    = "lost"     // the first region is lost, and with it the link
	isForced  = "force"    // the first region is there, and is given up
)

const promoteAgain, promoteFor = 200 * time.Millisecond, 30 * time.Second

// promote lets somebody promote the second region, again and again until that has succeeded.
func (w *World) promote(s plan.Step) {
	far, how := w.second, s.Args[0]
	if far.operator != nil {
		return
	}
	if far.nats.Stream(observer.Log) == nil { // there is nothing yet
		w.queue.Add(time.Now().Add(promoteAgain), func() { w.promote(s) })
		return
	}
	if how == isLost {
		far.link.cut = true
		far.link.down = time.Now().Add(100 * 365 * 24 * time.Hour)
	}
	if how == handsOver {
		far.observer.HandsOver()
	}
	far.operator = w.startAs(&far.site, "operator", true, func(p *process, ctx context.Context) error {
		nc, err := nats.Connect("nats://127.0.0.1", nats.SetCustomDialer(p), nats.MaxReconnects(-1),
			nats.RetryOnFailedConnect(true), nats.ReconnectWait(reconnectAfter), nats.ReconnectJitter(0, 0),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			return err
		}
		defer nc.Close()
		for ctx.Err() == nil {
			asking, cancel := context.WithTimeout(ctx, promoteFor)
			_, err = processor.Promote(asking, nc, prefix, processor.PromoteOptions{By: "operator",
				Drain: how == handsOver, Force: how == isForced})
			cancel()
			if how == handsOver && err != nil && (strings.Contains(err.Error(), "another log than") ||
				strings.Contains(err.Error(), "has lost its end")) {
				how = isForced // the first region has lost meanwhile what it was to hand over: a person decides
			}
			w.trace.Logger(p.name).Info("promotion", "error", err)
			if err == nil || strings.Contains(err.Error(), "the first already") {
				return nil
			}
			select {
			case <-time.After(promoteAgain):
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	})
}

// notePromotion notes that the second region is the first now: clients write there.
func (w *World) notePromotion() {
	far := w.second
	if far == nil || far.promoted {
		return
	}
	if log := far.nats.Stream(observer.Log); far.observer.Promoted() {
		far.promoted = true
		w.trace.Printf("--- the second region is the first now, and has the log up to %d", log.LastSeq())
	}
}
