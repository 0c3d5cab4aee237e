package kafka

import (
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"
)

// Errors that end a publisher, for errors.Is. Any other error of Publisher.Err is for a person to fix. Terminal tells
// which of all these another Open would not fix.
var (
	// ErrFenced: another publisher was opened under the same transactional id. This one must not go on. A record that was
	// not acknowledged may be in the topic or not; the other publisher has read the tails.
	ErrFenced = errors.New("fenced by another publisher with the same transactional id")

	// ErrRestart: it is no longer safe to send the last batches again. Close, Open another publisher, and continue from the tails. That is
	// safe at any time.
	ErrRestart = errors.New("the publisher must be opened again")

	// ErrTooLarge: a record is larger than what its topic takes. It was not published, and nothing after it is.
	ErrTooLarge = errors.New("record larger than the topic allows")

	// ErrTopicReplaced: acknowledged records are no longer in their partition. Somebody has deleted the topic and created it again, or a broker
	// without these records was elected. Consumers will never get those that they had not read; how many these are is not known.
	ErrTopicReplaced = errors.New("acknowledged records are gone")

	// ErrClosed: Close was called.
	ErrClosed = errors.New("publisher closed")
)

// refusedError is a broker's refusal, by the number that Kafka's protocol gives it. It replaces kafka-go's error outside this package,
// because that is a net.Error: a caller that checks for it first would take "fenced" and "not authorised" for a broken connection.
type refusedError struct {
	code int
	text string
}

func (e *refusedError) Error() string { return e.text }

// As lets this package grade the error by its code. It does not lead to a net.Error.
func (e *refusedError) As(target any) bool {
	code, ok := target.(*kafkago.Error)
	if ok {
		*code = kafkago.Error(e.code)
	}
	return ok
}

// refusal converts err for use outside this package: to a *refusedError if a broker refused.
func refusal(err error) error {
	var already *refusedError
	var code kafkago.Error
	if errors.As(err, &already) || !errors.As(err, &code) {
		return err
	}
	return &refusedError{code: int(code), text: err.Error()}
}

// withAdvice is refusal, with what a person can do about it.
func withAdvice(err error) error {
	if fix := advice(err); fix != "" {
		return fmt.Errorf("%w: %s", refusal(err), fix)
	}
	return refusal(err)
}

// Terminal reports whether err is a refusal, of this package or of a broker, that another publisher would not fix, or would make worse: a fenced
// publisher that is opened again fences the one that fenced it. It is false for ErrRestart and for a context that has ended.
func Terminal(err error) bool {
	for _, end := range []error{ErrFenced, ErrTooLarge, ErrTopicReplaced, ErrClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	if errors.Is(err, ErrRestart) {
		return false
	}
	var refused *refusedError
	var retention *RetentionError
	var unsafe *UnsafeError
	var small *SizeError
	var missing *MissingTopicError
	var offset *OffsetError
	return errors.As(err, &refused) || errors.As(err, &retention) || errors.As(err, &unsafe) || errors.As(err, &small) ||
		errors.As(err, &missing) || errors.As(err, &offset)
}

// grade says what to do about the outcome of a request.
type grade int

const (
	gradeDone    grade = iota // it is in the topic
	gradeRetry                // send the same bytes again
	gradeFenced               // another publisher has taken over
	gradeRestart              // the broker's memory and ours differ: new epoch, fence, tails
	gradeLarge                // the broker will not take a batch of this size
	gradeStop                 // a person must act
)

// gradeOf decides from the broker's error code. An error without a code is retried: a refused or broken connection, a timeout, a leader
// that is not known yet.
func gradeOf(err error) grade {
	if err == nil {
		return gradeDone
	}
	var missing *MissingTopicError
	var offset *OffsetError
	if errors.As(err, &missing) || errors.As(err, &offset) {
		return gradeStop
	}
	var code kafkago.Error
	if !errors.As(err, &code) {
		return gradeRetry
	}
	switch code {
	case kafkago.DuplicateSequenceNumber:
		return gradeDone
	case kafkago.InvalidProducerEpoch, kafkago.ProducerFenced:
		return gradeFenced
	case kafkago.OutOfOrderSequenceNumber, kafkago.UnknownProducerId, kafkago.InvalidProducerIDMapping:
		return gradeRestart
	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge:
		return gradeLarge
	case kafkago.Unknown, kafkago.BrokerNotAvailable, kafkago.ReplicaNotAvailable, kafkago.ConcurrentTransactions,
		kafkago.TransactionCoordinatorFenced, kafkago.SASLAuthenticationFailed:
		// SASLAuthenticationFailed: kafka-go also reports it if a broker shuts down during a login.
		return gradeRetry
	}
	if code.Temporary() {
		return gradeRetry
	}
	return gradeStop
}

// advice is what a person can do about an error, or "".
func advice(err error) string {
	var code kafkago.Error
	if !errors.As(err, &code) {
		return ""
	}
	switch code {
	case kafkago.TopicAuthorizationFailed:
		return "grant this login WRITE, READ and DESCRIBE on the topic"
	case kafkago.TransactionalIDAuthorizationFailed:
		return "grant this login WRITE and DESCRIBE on the transactional id"
	case kafkago.ClusterAuthorizationFailed:
		return "grant this login CREATE on the topic, or IDEMPOTENT_WRITE on the cluster for brokers before 3.0"
	case kafkago.SASLAuthenticationFailed:
		return "the brokers refuse this login: check kafka.sasl.username and the password in kafka.sasl.password_file"
	case kafkago.UnsupportedSASLMechanism:
		return "the brokers do not offer this login: set kafka.sasl.mechanism to one that they do"
	case kafkago.InvalidReplicationFactor:
		return "there are fewer brokers than replicas asked for"
	case kafkago.InvalidTimestamp:
		return "the clock of this host is ahead of the broker's by more than message.timestamp.after.max.ms, or " +
			"records are older than message.timestamp.before.max.ms"
	case kafkago.InvalidRecord:
		return "a compacted topic takes no records without key"
	}
	return ""
}
