package config

import "strings"

// docs are the sentences about keys whose line in the other tables has none: key, blank, sentence.
const docs = `
remote.log.storage.system.enable Whether topics may have old segments in remote storage.
remote.log.storage.manager.impl.prefix Keys with this prefix are handed to the remote storage plug-in.
remote.log.metadata.manager.impl.prefix Keys with this prefix are handed to the plug-in that keeps track of remote segments.
remote.log.storage.manager.class.name The plug-in that stores segments remotely.
remote.log.storage.manager.class.path Where the remote storage plug-in's classes are.
remote.log.metadata.manager.class.name The plug-in that keeps track of remote segments.
remote.log.metadata.manager.class.path Where the classes of the plug-in that keeps track of remote segments are.
remote.log.metadata.manager.listener.name The listener over which remote segments' metadata is read and written.
remote.log.metadata.custom.metadata.max.bytes The most that a storage plug-in may note about a segment.
remote.log.index.file.cache.total.size.bytes The disk space for indexes fetched from remote storage.
remote.log.index.file.cache.ttl.ms How long an index fetched from remote storage is kept unused.
remote.log.manager.thread.pool.size Threads that copy to, and delete from, remote storage.
remote.log.manager.copier.thread.pool.size Threads that copy segments to remote storage.
remote.log.manager.expiration.thread.pool.size Threads that delete expired remote segments.
remote.log.manager.follower.thread.pool.size Threads that followers read remote metadata with.
remote.log.manager.task.interval.ms How often segments are looked at for what must be copied or deleted remotely.
remote.log.manager.task.retry.backoff.ms The first pause after a failed remote task.
remote.log.manager.task.retry.backoff.max.ms The longest pause after failed remote tasks.
remote.log.manager.task.retry.jitter The share by which such pauses vary.
remote.log.reader.threads Threads that read from remote storage.
remote.log.reader.max.pending.tasks Reads from remote storage that may wait; more are refused.
log.local.retention.ms How long segments stay here once they are in remote storage; -2 is log.retention.ms.
log.local.retention.bytes How much stays here once it is in remote storage; -2 is log.retention.bytes.
log.remote.copy.lag.ms How old a segment must be before it is copied to remote storage.
log.remote.copy.lag.bytes How much must lie behind a segment before it is copied to remote storage.
remote.log.manager.copy.max.bytes.per.second The most that is copied to remote storage in a second.
remote.log.manager.copy.quota.window.num How many samples that rate is measured over.
remote.log.manager.copy.quota.window.size.seconds The length of such a sample.
remote.log.manager.fetch.max.bytes.per.second The most that is read from remote storage in a second.
remote.log.manager.fetch.quota.window.num How many samples that rate is measured over.
remote.log.manager.fetch.quota.window.size.seconds The length of such a sample.
remote.fetch.max.wait.ms How long a fetch waits for remote storage.
remote.list.offsets.request.timeout.ms How long a question for offsets waits for remote storage.
num.replica.alter.log.dirs.threads How many moves between log directories run at a time; as many as there are directories if not set.
socket.connection.setup.timeout.ms How long a connection to another node may take to be made.
socket.connection.setup.timeout.max.ms How long at most, after failures.
controller.performance.sample.period.ms How often the controller sums up its slowest operations.
controller.performance.always.log.threshold.ms Operations of the controller that took longer are always logged.
server.max.startup.time.ms How long a start may take before it is given up.
internal.metadata.log.segment.bytes The metadata log's segment size, without a lower bound.
internal.metadata.max.batch.size.in.bytes The largest batch of metadata records.
internal.metadata.delete.delay.millis How long deleted files of the metadata log remain.
controller.socket.timeout.ms How long a broker waits for the controller's answer.
fetch.purgatory.purge.interval.requests How many finished fetches are gathered before they are purged.
producer.purgatory.purge.interval.requests How many finished produces are gathered before they are purged.
delete.records.purgatory.purge.interval.requests How many finished DeleteRecords are gathered before they are purged.
share.fetch.purgatory.purge.interval.requests How many finished share fetches are gathered before they are purged.
follower.fetch.last.tiered.offset.enable Whether a new follower begins at the first offset that is not in remote storage.
group.coordinator.rebalance.protocols The group protocols that are served.
group.coordinator.threads Threads of the group coordinator.
group.coordinator.background.threads Threads of the group coordinator for assignments and regular expressions.
group.coordinator.append.linger.ms How long the coordinator gathers records before it writes them; -1 adapts.
offsets.commit.timeout.ms How long a commit may take to reach all replicas.
offsets.load.buffer.size How much is read at a time while offsets are loaded.
offsets.topic.compression.codec The codec of the topic of consumer offsets, by number.
offsets.retention.check.interval.ms How often expired offsets are looked for.
group.coordinator.cached.buffer.max.bytes The largest buffer that the coordinator keeps for its next write.
group.consumer.session.timeout.ms How long a consumer may be silent before it leaves its group.
group.consumer.min.session.timeout.ms The least session timeout that a consumer group may have.
group.consumer.max.session.timeout.ms The most session timeout that a consumer group may have.
group.consumer.heartbeat.interval.ms How often consumers are to send heartbeats.
group.consumer.min.heartbeat.interval.ms The least heartbeat interval that a consumer group may have.
group.consumer.max.heartbeat.interval.ms The most heartbeat interval that a consumer group may have.
group.consumer.max.size The most members of a consumer group.
group.consumer.assignors The assignors that consumer groups may use; the first is the default.
group.consumer.migration.policy Whether classic groups may become consumer groups, and back, while they run.
group.consumer.assignment.interval.ms The least pause between two assignments of a consumer group.
group.consumer.min.assignment.interval.ms The least such pause that a consumer group may have.
group.consumer.max.assignment.interval.ms The most such pause that a consumer group may have.
group.consumer.assignor.offload.enable Whether assignments are computed on a thread of their own.
group.consumer.regex.refresh.interval.ms How often regular expressions are matched with the topics again.
group.share.session.timeout.ms How long a member of a share group may be silent before it leaves.
group.share.min.session.timeout.ms The least session timeout that a share group may have.
group.share.max.session.timeout.ms The most session timeout that a share group may have.
group.share.heartbeat.interval.ms How often members of share groups are to send heartbeats.
group.share.min.heartbeat.interval.ms The least heartbeat interval that a share group may have.
group.share.max.heartbeat.interval.ms The most heartbeat interval that a share group may have.
group.share.max.size The most members of a share group.
group.share.assignors The assignor of share groups.
group.share.assignment.interval.ms The least pause between two assignments of a share group.
group.share.min.assignment.interval.ms The least such pause that a share group may have.
group.share.max.assignment.interval.ms The most such pause that a share group may have.
group.share.assignor.offload.enable Whether assignments are computed on a thread of their own.
group.share.initialize.retry.interval.ms How soon the making of a share group's state is tried again.
group.share.delivery.count.limit How often a record is delivered before it counts as not to be processed.
group.share.max.delivery.count.limit The most such limit that a share group may have.
group.share.min.delivery.count.limit The least such limit that a share group may have.
group.share.record.lock.duration.ms How long a record is lent to a member.
group.share.min.record.lock.duration.ms The least such time that a share group may have.
group.share.max.record.lock.duration.ms The most such time that a share group may have.
group.share.partition.max.record.locks How many records of a partition may be lent at a time.
group.share.max.partition.max.record.locks The most such number that a share group may have.
group.share.min.partition.max.record.locks The least such number that a share group may have.
group.share.max.share.sessions How many sessions of share fetches are kept.
group.share.persister.class.name What keeps the state of share groups.
group.share.dlq.manager.class.name What writes records that could not be processed to their topic.
errors.deadletterqueue.auto.create.topics.enable Whether topics for records that share groups could not process are created.
errors.deadletterqueue.topic.name.prefix The beginning of such topics' names.
group.streams.session.timeout.ms How long a member of a streams group may be silent before it leaves.
group.streams.min.session.timeout.ms The least session timeout that a streams group may have.
group.streams.max.session.timeout.ms The most session timeout that a streams group may have.
group.streams.heartbeat.interval.ms How often members of streams groups are to send heartbeats.
group.streams.min.heartbeat.interval.ms The least heartbeat interval that a streams group may have.
group.streams.max.heartbeat.interval.ms The most heartbeat interval that a streams group may have.
group.streams.max.size The most members of a streams group.
group.streams.num.standby.replicas Standby copies of each task's state.
group.streams.max.standby.replicas The most standby copies that a streams group may have.
group.streams.initial.rebalance.delay.ms How long the first assignment of a streams group waits for more members.
group.streams.assignment.interval.ms The least pause between two assignments of a streams group.
group.streams.min.assignment.interval.ms The least such pause that a streams group may have.
group.streams.max.assignment.interval.ms The most such pause that a streams group may have.
group.streams.assignors The assignors that streams groups may use; the first is the default.
group.streams.assignor.offload.enable Whether assignments are computed on a thread of their own.
group.streams.task.offset.interval.ms How often members tell how far their tasks are.
group.streams.min.task.offset.interval.ms The least such interval that a streams group may have.
group.streams.num.warmup.replicas Copies of state that may be warmed up at a time.
group.streams.max.warmup.replicas The most such copies that a streams group may have.
group.streams.rack.aware.assignment.tags The clients' tags over which standby copies are spread.
group.streams.topology.description.plugin.class A plug-in that describes topologies.
group.streams.acceptable.recovery.lag How far a copy of state may lag and count as caught up.
log.cleaner.io.buffer.size The memory of all compaction threads for reading and writing.
log.cleaner.io.buffer.load.factor How full compaction's map of keys may become.
log.initial.task.delay.ms The pause after the start before background work on logs begins.
share.coordinator.state.topic.num.partitions Partitions of the topic of share groups' state.
share.coordinator.state.topic.replication.factor Replicas of the topic of share groups' state.
share.coordinator.state.topic.min.isr min.insync.replicas of the topic of share groups' state.
share.coordinator.state.topic.segment.bytes The segment size of the topic of share groups' state.
share.coordinator.threads Threads of the share coordinator.
share.coordinator.snapshot.update.records.per.snapshot How many changes of a share partition's state are written between two whole ones.
share.coordinator.load.buffer.size How much is read at a time while share groups' state is loaded.
share.coordinator.state.topic.compression.codec The codec of the topic of share groups' state, by number.
share.coordinator.append.linger.ms How long the share coordinator gathers records before it writes them; -1 adapts.
share.coordinator.write.timeout.ms How long such a write may take to reach all replicas.
share.coordinator.state.topic.prune.interval.ms How often what is no longer needed is deleted from that topic.
share.coordinator.cold.partition.snapshot.interval.ms How often the state of a share partition is written whole if nothing happens to it.
share.coordinator.cached.buffer.max.bytes The largest buffer that the share coordinator keeps for its next write.
transaction.state.log.load.buffer.size How much is read at a time while transactions are loaded.
transaction.state.log.segment.bytes The segment size of the topic of transactions.
transaction.partition.verification.enable Whether a broker asks the coordinator if a partition is part of the transaction before it writes.
producer.id.expiration.check.interval.ms How often logs look for idle producers to forget.
transaction.abort.timed.out.transaction.cleanup.interval.ms How often transactions that took too long are looked for.
transaction.remove.expired.transaction.cleanup.interval.ms How often idle transactional ids are looked for.
transaction.two.phase.commit.enable Whether transactions may stay prepared without a time limit.
metrics.num.samples How many samples a rate is measured over.
metrics.sample.window.ms The length of such a sample.
metrics.recording.level How many metrics are recorded.
kafka.metrics.reporters Kafka's plug-ins for metrics of an older kind.
kafka.metrics.polling.interval.secs How often those are called.
replication.quota.window.num How many samples the replication throttle is measured over.
alter.log.dirs.replication.quota.window.num How many samples the throttle of moves between directories is measured over.
controller.quota.window.num How many samples the quota of changes of topics is measured over.
replication.quota.window.size.seconds The length of a sample of the replication throttle.
alter.log.dirs.replication.quota.window.size.seconds The length of a sample of the throttle of moves between directories.
controller.quota.window.size.seconds The length of a sample of the quota of changes of topics.
client.quota.callback.class A Java plug-in: cannot be loaded here.
sasl.server.max.receive.size The largest message of a SASL exchange.
security.providers Java's security providers.
ssl.allow.dn.changes Whether a new certificate may have another distinguished name.
ssl.allow.san.changes Whether a new certificate may lack alternative names of the old one.
ssl.provider Java's security provider for TLS.
ssl.keymanager.algorithm Java's algorithm for key managers.
ssl.trustmanager.algorithm Java's algorithm for trust managers.
ssl.endpoint.identification.algorithm How the name in a server's certificate is checked; empty is not at all.
ssl.secure.random.implementation Java's source of random numbers for TLS.
ssl.cipher.suites The cipher suites that are spoken; empty is all.
ssl.engine.factory.class A Java plug-in that makes TLS engines.
sasl.server.callback.handler.class A Java plug-in that checks what clients show.
sasl.kerberos.principal.to.local.rules How a Kerberos principal becomes a user's name.
sasl.client.callback.handler.class A Java plug-in that gives what this node shows to others.
sasl.login.class A Java plug-in that logs in.
sasl.login.callback.handler.class A Java plug-in that gives what is needed to log in.
sasl.kerberos.service.name The Kerberos service that brokers are.
sasl.kerberos.kinit.cmd The kinit command.
sasl.kerberos.ticket.renew.window.factor The share of a ticket's life after which it is renewed.
sasl.kerberos.ticket.renew.jitter The share by which that varies.
sasl.kerberos.min.time.before.relogin The least pause between two logins.
sasl.login.refresh.window.factor The share of a token's life after which it is renewed.
sasl.login.refresh.window.jitter The share by which that varies.
sasl.login.refresh.min.period.seconds The least time before a token is renewed.
sasl.login.refresh.buffer.seconds The time before a token's end by which it should be renewed.
sasl.login.connect.timeout.ms How long the connection to a token's issuer may take to be made.
sasl.login.read.timeout.ms How long a token's issuer may take to answer.
sasl.login.retry.backoff.max.ms The longest pause between two tries to log in.
sasl.login.retry.backoff.ms The first pause between two tries to log in.
sasl.oauthbearer.jwt.retriever.class What gets a token.
sasl.oauthbearer.jwt.validator.class What checks a token.
sasl.oauthbearer.scope The scope that a token is asked for.
sasl.oauthbearer.client.credentials.client.id The id with which a token is asked for.
sasl.oauthbearer.client.credentials.client.secret The secret with which a token is asked for.
sasl.oauthbearer.assertion.algorithm The algorithm that signs an assertion.
sasl.oauthbearer.assertion.claim.aud The audience in an assertion.
sasl.oauthbearer.assertion.claim.exp.seconds How long an assertion is good for.
sasl.oauthbearer.assertion.claim.iss The issuer in an assertion.
sasl.oauthbearer.assertion.claim.jti.include Whether an assertion has an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds How long before now an assertion begins to be good.
sasl.oauthbearer.assertion.claim.sub The subject in an assertion.
sasl.oauthbearer.assertion.file A file with a ready assertion.
sasl.oauthbearer.assertion.private.key.file The file with the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase The passphrase of that key.
sasl.oauthbearer.assertion.template.file A file with more claims for assertions.
sasl.oauthbearer.scope.claim.name The claim that holds a token's scope.
sasl.oauthbearer.sub.claim.name The claim that holds a token's subject.
sasl.oauthbearer.token.endpoint.url Where a token is asked for.
sasl.oauthbearer.jwks.endpoint.url Where the keys are that tokens are signed with.
sasl.oauthbearer.jwks.endpoint.refresh.ms How often those keys are read again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms The first pause before they are asked for again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms The longest such pause.
sasl.oauthbearer.clock.skew.seconds How far clocks may differ when a token is checked.
sasl.oauthbearer.allow.unverified.audience Whether a token's audience need not be checked.
sasl.oauthbearer.expected.audience The audiences that a token may have.
sasl.oauthbearer.allow.unverified.issuer Whether a token's issuer need not be checked.
sasl.oauthbearer.expected.issuer The issuer that a token must have.
delegation.token.max.lifetime.ms The longest that a delegation token can live, renewed as it may be.
delegation.token.expiry.time.ms How long a delegation token is good for until it is renewed.
delegation.token.expiry.check.interval.ms How often expired delegation tokens are looked for.
add.partitions.to.txn.retry.backoff.max.ms The longest that a broker tries to add a partition to a transaction for a producer.
add.partitions.to.txn.retry.backoff.ms The pause between such tries.
internal.segment.bytes segment.bytes without a lower bound.
share.auto.offset.reset Where a share group begins: latest, earliest, or by_duration.
share.isolation.level Whether a share group reads records of transactions that are not committed.
share.renew.acknowledge.enable Whether a member may ask for more time for a record.
streams.assignor.name The assignor of the group.
errors.deadletterqueue.topic.name The topic for records that the group could not process.
errors.deadletterqueue.copy.record.enable Whether such records are copied there whole.
`

// withDocs fills in sentences from docs. A group's key without one of its own has that of the broker's key that gives its
// default.
func (t *Table) withDocs() *Table {
	byKey := make(map[string]string)
	for line := range strings.Lines(docs) {
		if key, text, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			byKey[key] = text
		}
	}
	for _, k := range t.Keys {
		if k.Doc == "" {
			k.Doc = byKey[k.Name]
		}
		if k.Doc == "" && len(k.Synonyms) > 0 {
			k.Doc = byKey[k.Synonyms[0].Name]
		}
	}
	return t
}
