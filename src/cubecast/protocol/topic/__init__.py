"""One topic at one node of the production protocol: `topic.TopicCore` and its parts."""
