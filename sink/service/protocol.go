package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// The protocol of NATS services (ADR-32) is subscriptions in a queue group, and answers to PING, INFO and STATS. The
// client library's services (package micro) count a request, its time and its error when their handler returns, and
// handlers of an endpoint run one after the other. So for requests that are answered side by side their STATS would
// have a time of 0 and no errors; a StatsHandler adds data beside these, and replaces none. Therefore this package
// implements the protocol itself.

var semVer = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// identity identifies this instance in each answer.
func (s *Service) identity() micro.ServiceIdentity {
	return micro.ServiceIdentity{Name: Name, ID: s.id, Version: s.opts.Version, Metadata: map[string]string{
		"prefix": string(s.opts.Prefix), "shards": strconv.Itoa(s.opts.Shards),
	}}
}

func (s *Service) ping() any {
	return micro.Ping{ServiceIdentity: s.identity(), Type: micro.PingResponseType}
}

func (s *Service) info() any {
	info := micro.Info{ServiceIdentity: s.identity(), Type: micro.InfoResponseType,
		Description: "reads of documents that expire: get, list, query, count, forecast, config, collections"}
	for _, e := range endpoints {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{
			Name: e.verb, Subject: s.subject(e), QueueGroup: micro.DefaultQueueGroup,
			Metadata: map[string]string{"subject": s.usage(e)},
		})
	}
	return info
}

func (s *Service) statistics() any {
	all := micro.Stats{ServiceIdentity: s.identity(), Type: micro.StatsResponseType, Started: s.started}
	for _, e := range endpoints {
		one := s.stats[e.verb].snapshot()
		one.Name, one.Subject, one.QueueGroup = e.verb, s.subject(e), micro.DefaultQueueGroup
		all.Endpoints = append(all.Endpoints, &one)
	}
	return all
}

// subscribe subscribes to the requests, and to PING, INFO and STATS. With an error it keeps no subscription.
func (s *Service) subscribe() error {
	type subscription struct {
		subject, queue string
		handle         nats.MsgHandler
	}
	var all []subscription
	for _, e := range endpoints {
		all = append(all, subscription{s.subject(e), micro.DefaultQueueGroup, s.dispatch(e)})
	}
	for verb, answer := range map[micro.Verb]func() any{
		micro.PingVerb: s.ping, micro.InfoVerb: s.info, micro.StatsVerb: s.statistics,
	} {
		for _, to := range [][2]string{{"", ""}, {Name, ""}, {Name, s.id}} {
			subject, _ := micro.ControlSubject(verb, to[0], to[1]) // no error: each verb is one of NATS
			all = append(all, subscription{subject, "", func(msg *nats.Msg) { s.tell(msg, answer()) }})
		}
	}
	for _, one := range all {
		sub, err := s.nc.QueueSubscribe(one.subject, one.queue, one.handle)
		if err != nil {
			return errors.Join(fmt.Errorf("subscribe to %s: %w", one.subject, err), s.unsubscribe())
		}
		s.subs = append(s.subs, sub)
	}
	return nil
}

// tell answers PING, INFO or STATS.
func (s *Service) tell(msg *nats.Msg, answer any) {
	data, err := json.Marshal(answer)
	if err == nil {
		err = msg.Respond(data)
	}
	if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
		s.log.Warn("reads: PING, INFO or STATS could not be answered", slog.String("subject", msg.Subject),
			slog.Any("error", err))
	}
}

// unsubscribe ends the subscriptions. Requests that have arrived are still dispatched.
func (s *Service) unsubscribe() (err error) {
	for _, sub := range s.subs {
		if e := sub.Drain(); !errors.Is(e, nats.ErrConnectionClosed) {
			err = errors.Join(err, e)
		}
	}
	s.subs = nil
	return err
}

// subject is the subject that an endpoint subscribes to.
func (s *Service) subject(e endpoint) string {
	if e.arguments == "" {
		return s.usage(e)
	}
	return s.opts.Prefix.Read(e.verb, ">")
}

// usage is the subject of a request to an endpoint, with names for its tokens.
func (s *Service) usage(e endpoint) string {
	if e.arguments == "" {
		return string(s.opts.Prefix) + ".read." + e.verb
	}
	return s.opts.Prefix.Read(e.verb, e.arguments)
}

// lastError is a failure as the statistics of a NATS service write it.
func (f *failure) lastError() string { return strconv.Itoa(f.code) + ":" + f.text }

// stats counts the requests of an endpoint, and the time that each took from the moment at
// which the service began to answer it.
type stats struct {
	mu sync.Mutex
	micro.EndpointStats
}

// add counts a request.
func (s *stats) add(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.NumRequests++
	s.ProcessingTime += took
	s.AverageProcessingTime = s.ProcessingTime / time.Duration(s.NumRequests)
}

// fail counts a request as failed; add has counted it before.
func (s *stats) fail(f *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.NumErrors++
	s.LastError = f.lastError()
}

func (s *stats) snapshot() micro.EndpointStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.EndpointStats
}
